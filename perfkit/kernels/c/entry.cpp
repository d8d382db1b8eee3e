/* From a call in Python to PyTorch's dispatcher, for operators of tensors and numbers.
 *
 * What PyTorch makes for an operator that a library declares matches every call against the schema: keywords, defaults,
 * lists, tensor subclasses. Its own operators have generated code in that place, which is shorter. So has this: where all
 * arguments are there, by position, and each is plainly of its type, they go straight to the dispatcher, which does all
 * else as ever (modes, autograd, the profiler's records). Any other call is what it was.
 *
 * Compiled at run time against the headers of the Python and the PyTorch that are installed (perfkit/kernels/c/entry.py).
 */
#include <Python.h>

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <vector>

namespace {

using torch::jit::Stack;

struct Operator {
    c10::OperatorHandle handle;
    std::vector<c10::TypeKind> kinds; /* of the arguments */
};

struct Entry {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *general; /* what PyTorch made */
    Operator *operation;
};

/* Put an argument on the stack; false where it is not plainly of the kind, for all of which PyTorch has rules. */
bool put(Stack &stack, PyObject *argument, c10::TypeKind kind) {
    if (kind == c10::TypeKind::TensorType) {
        if (!THPVariable_CheckExact(argument)) return false;
        stack.emplace_back(THPVariable_Unpack(argument));
    } else if (kind == c10::TypeKind::FloatType) {
        if (!PyFloat_CheckExact(argument)) return false;
        stack.emplace_back(PyFloat_AS_DOUBLE(argument));
    } else {
        if (!PyLong_CheckExact(argument)) return false;
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(argument, &overflow);
        if (overflow) return false;
        stack.emplace_back(static_cast<int64_t>(value));
    }
    return true;
}

PyObject *wrapped(c10::IValue &value) {
    PyObject *tensor = THPVariable_Wrap(std::move(value).toTensor());
    if (!tensor) throw python_error();
    return tensor;
}

/* What a call gave, as PyTorch gives it: a tensor, or a tuple of several. */
PyObject *taken(Stack &stack) {
    if (stack.size() == 1) return wrapped(stack[0]);
    pybind11::tuple tuple(stack.size());
    for (size_t i = 0; i < stack.size(); ++i) PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), wrapped(stack[i]));
    return tuple.release().ptr();
}

PyObject *call(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *names) {
    HANDLE_TH_ERRORS
    auto *entry = reinterpret_cast<Entry *>(self);
    const Operator &operation = *entry->operation;
    size_t count = operation.kinds.size();
    if (static_cast<size_t>(PyVectorcall_NARGS(flags)) == count && !(names && PyTuple_GET_SIZE(names)) &&
        !at::impl::torch_function_mode_enabled()) {
        Stack stack;
        stack.reserve(count);
        size_t i = 0;
        while (i < count && put(stack, arguments[i], operation.kinds[i])) ++i;
        if (i == count) {
            {
                pybind11::gil_scoped_release released;
                operation.handle.callBoxed(&stack);
            }
            return taken(stack);
        }
    }
    return PyObject_Vectorcall(entry->general, arguments, flags, names);
    END_HANDLE_TH_ERRORS
}

void forget(PyObject *self) {
    auto *entry = reinterpret_cast<Entry *>(self);
    Py_XDECREF(entry->general);
    delete entry->operation;
    Py_TYPE(self)->tp_free(self);
}

/* PyTorch finds operators by the hash of this. */
Py_hash_t hash(PyObject *self) { return PyObject_Hash(reinterpret_cast<Entry *>(self)->general); }

PyObject *attribute(PyObject *self, PyObject *name) {
    return PyObject_GetAttr(reinterpret_cast<Entry *>(self)->general, name);
}

PyTypeObject *type() {
    static PyTypeObject made = {PyVarObject_HEAD_INIT(nullptr, 0)};
    if (!made.tp_name) {
        made.tp_name = "perfkit.Entry";
        made.tp_basicsize = sizeof(Entry);
        made.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
        made.tp_vectorcall_offset = offsetof(Entry, vectorcall);
        made.tp_call = PyVectorcall_Call;
        made.tp_dealloc = forget;
        made.tp_hash = hash;
        made.tp_getattro = attribute;
        if (PyType_Ready(&made) < 0) {
            made.tp_name = nullptr;
            return nullptr;
        }
    }
    return &made;
}

} // namespace

/* A callable for the operator `name`, which sends what it does not serve to `general`; None where the operator has
 * arguments or results that it could not serve. */
extern "C" PyObject *perfkit_entry(const char *name, PyObject *general) {
    HANDLE_TH_ERRORS
    auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    std::vector<c10::TypeKind> kinds;
    for (const c10::Argument &argument : handle.schema().arguments()) {
        auto kind = argument.type()->kind();
        if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::FloatType && kind != c10::TypeKind::IntType)
            Py_RETURN_NONE;
        kinds.push_back(kind);
    }
    for (const c10::Argument &result : handle.schema().returns())
        if (result.type()->kind() != c10::TypeKind::TensorType) Py_RETURN_NONE;
    if (handle.schema().returns().empty()) Py_RETURN_NONE;
    PyTypeObject *made = type();
    if (!made) throw python_error();
    auto *entry = PyObject_New(Entry, made);
    if (!entry) throw python_error();
    entry->vectorcall = call;
    entry->general = Py_NewRef(general);
    entry->operation = new Operator{handle, std::move(kinds)};
    return reinterpret_cast<PyObject *>(entry);
    END_HANDLE_TH_ERRORS
}

/* Calls of perfkit's operators that need no Python: from PyTorch's dispatcher straight to a C kernel.
 *
 * Python knows how an operation is checked, its outputs are allocated and its kernel is chosen. It does so at the first
 * call with given shapes, types and numbers, and leaves a plan here; every later call like it follows the plan. What has
 * no plan, and a call whose kernel reports a failure, goes to Python: to the operator of the same name in the namespace
 * `perfkit_python`, which no profiler sees, because it is reached by redispatch.
 *
 * Compiled at run time against the headers of the PyTorch that is installed (perfkit/kernels/c/calls.py).
 */
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#if !defined(__unix__) && !defined(__APPLE__) || !defined(__x86_64__) && !defined(__aarch64__)
#error "the calling convention of this platform is not known"
#endif

namespace {

using c10::DispatchKey, c10::DispatchKeySet, c10::IValue, c10::OperatorHandle;
using torch::jit::Stack;

/* In the order of TYPES in calls.py. */
constexpr at::ScalarType TYPES[] = {at::kFloat, at::kBFloat16, at::kLong, at::kInt, at::kDouble, at::kHalf};

/* A kernel takes pointers and int64_t, and doubles among them. In the conventions of x86-64 and AArch64 under Unix the
 * integers keep their order whatever doubles stand between them, and the doubles are in registers of their own; arguments
 * beyond those that a function has do no harm. So one type of function serves for all. */
constexpr size_t INTEGERS = 20, DOUBLES = 8;
using Word = int64_t;
using Kernel = int (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word,
                       Word, Word, Word, double, double, double, double, double, double, double, double);

struct Shape {
    at::ScalarType type;
    std::vector<int64_t> sizes, strides; /* no strides: contiguous */
};

struct Number {
    int64_t is_double, bits;
};

struct Plan {
    std::vector<Shape> tensors; /* what a call must look like to follow this plan: its tensors and its numbers */
    std::vector<Number> numbers;
    Kernel kernel;
    std::vector<int64_t> integers; /* what the kernel takes after the tensors */
    std::vector<double> doubles;
    std::vector<Shape> outputs;
};

bool fits(const at::Tensor &tensor, const Shape &shape) {
    return tensor.scalar_type() == shape.type && tensor.sizes() == c10::IntArrayRef(shape.sizes) && tensor.is_contiguous();
}

bool fits(const IValue &value, const Number &number) {
    if (value.isDouble() != (number.is_double != 0)) return false;
    double real = value.isDouble() ? value.toDouble() : 0.0;
    int64_t bits;
    if (value.isDouble()) std::memcpy(&bits, &real, sizeof bits);
    else bits = value.isBool() ? value.toBool() : value.toInt();
    return bits == number.bits;
}

bool fits(c10::ArrayRef<IValue> arguments, const Plan &plan) {
    size_t tensor = 0, number = 0;
    for (const IValue &argument : arguments) {
        if (argument.isTensor()) {
            if (tensor == plan.tensors.size() || !fits(argument.toTensor(), plan.tensors[tensor++])) return false;
        } else if (number == plan.numbers.size() || !fits(argument, plan.numbers[number++])) {
            return false;
        }
    }
    return tensor == plan.tensors.size() && number == plan.numbers.size();
}

using Outputs = c10::SmallVector<at::Tensor, 4>;

/* Run the kernel; whether it says that it is done. */
bool run(c10::ArrayRef<IValue> arguments, const Plan &plan, Outputs &outputs) {
    Word w[INTEGERS] = {};
    double d[DOUBLES] = {};
    size_t used = 0;
    for (const IValue &argument : arguments)
        if (argument.isTensor()) w[used++] = reinterpret_cast<Word>(argument.toTensor().data_ptr());
    for (const Shape &shape : plan.outputs) {
        outputs.emplace_back(at::detail::empty_strided_cpu(shape.sizes, shape.strides, shape.type));
        w[used++] = reinterpret_cast<Word>(outputs.back().data_ptr());
    }
    for (int64_t value : plan.integers) w[used++] = value;
    std::copy(plan.doubles.begin(), plan.doubles.end(), d);
    return plan.kernel(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14],
                       w[15], w[16], w[17], w[18], w[19], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]) == 0;
}

/* What a thread used last of one operator's plans, and how often they had changed then. */
struct Last {
    uint64_t changes;
    std::shared_ptr<const Plan> plan;
};
thread_local std::vector<Last> last_used; /* by the operator's number */

/* The plans of one operator: a few, the oldest of which makes place for the next. */
class Plans {
  public:
    Plans() : number_(operators_++) {}

    /* The plan that the arguments fit, or null; the thread keeps it until it asks for another. Calls that are like the
     * thread's last one take no lock and count no references. */
    const Plan *find(c10::ArrayRef<IValue> arguments) const {
        if (last_used.size() <= number_) last_used.resize(number_ + 1);
        Last &last = last_used[number_];
        if (last.plan && last.changes == changes_.load(std::memory_order_acquire) && fits(arguments, *last.plan))
            return last.plan.get();
        std::shared_lock lock(mutex_);
        for (const auto &plan : plans_)
            if (fits(arguments, *plan)) {
                last = {changes_.load(std::memory_order_relaxed), plan};
                return last.plan.get();
            }
        return nullptr;
    }

    void add(std::shared_ptr<const Plan> plan) {
        std::unique_lock lock(mutex_);
        if (plans_.size() < MOST) plans_.push_back(std::move(plan));
        else plans_[oldest_++ % MOST] = std::move(plan);
        ++changes_;
    }

    void clear() {
        std::unique_lock lock(mutex_);
        plans_.clear();
        ++changes_;
    }

  private:
    static constexpr size_t MOST = 16;
    static inline std::atomic<size_t> operators_{0};
    const size_t number_;
    mutable std::shared_mutex mutex_;
    std::atomic<uint64_t> changes_{0};
    std::vector<std::shared_ptr<const Plan>> plans_;
    size_t oldest_ = 0;
};

/* The operator's kernel on the CPU. */
class OnCPU : public c10::OperatorKernel {
  public:
    OnCPU(Plans &plans, OperatorHandle python)
        : plans_(plans), python_(std::move(python)), count_(python_.schema().arguments().size()) {}

    void operator()(const OperatorHandle &, DispatchKeySet, Stack *stack) { call(stack); }

    void call(Stack *stack) {
        auto arguments = torch::jit::last(*stack, count_);
        if (const Plan *plan = plans_.find(arguments)) {
            Outputs outputs;
            if (run(arguments, *plan, outputs)) {
                torch::jit::drop(*stack, count_);
                for (auto &output : outputs) stack->emplace_back(std::move(output));
                return;
            }
        }
        python_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
    }

  private:
    Plans &plans_;
    OperatorHandle python_;
    size_t count_;
};

/* The operator's kernel for autograd: Python's where a gradient is needed, else the next one, which mostly is the CPU's. */
class UnderAutograd : public c10::OperatorKernel {
  public:
    UnderAutograd(Plans &plans, OperatorHandle python)
        : cpu_(plans, python), python_(std::move(python)), count_(python_.schema().arguments().size()) {}

    void operator()(const OperatorHandle &op, DispatchKeySet keys, Stack *stack) {
        if (c10::GradMode::is_enabled())
            for (const IValue &argument : torch::jit::last(*stack, count_))
                if (argument.isTensor() && argument.toTensor().requires_grad()) return python_.redispatchBoxed(keys, stack);
        DispatchKeySet next = keys & c10::after_autograd_keyset;
        if (next.highestPriorityTypeId() == DispatchKey::CPU) cpu_.call(stack);
        else op.redispatchBoxed(next, stack);
    }

  private:
    OnCPU cpu_;
    OperatorHandle python_;
    size_t count_;
};

std::vector<Shape> read_shapes(const int64_t *&p, bool strides) {
    std::vector<Shape> shapes(static_cast<size_t>(*p++));
    for (Shape &shape : shapes) {
        shape.type = TYPES[*p++];
        int64_t rank = *p++;
        shape.sizes.assign(p, p + rank);
        p += rank;
        if (strides) {
            shape.strides.assign(p, p + rank);
            p += rank;
        }
    }
    return shapes;
}

std::string last_error;

} // namespace

extern "C" {

const char *perfkit_last_error() { return last_error.c_str(); }

/* Take over the operator `perfkit::name`, on the CPU, and with `gradient` under autograd; null with a `last_error`.
 * What it returns stays until the process ends, as the operator does. */
void *perfkit_take_over(const char *name, int gradient) try {
    auto &dispatcher = c10::Dispatcher::singleton();
    std::string operation = name;
    c10::OperatorName ours("perfkit::" + operation, "");
    OperatorHandle python = dispatcher.findSchemaOrThrow(("perfkit_python::" + operation).c_str(), "");
    auto *plans = new Plans();
    auto add = [&](DispatchKey key, c10::KernelFunction kernel) {
        new c10::RegistrationHandleRAII(dispatcher.registerImpl(
            ours, key, std::move(kernel), std::nullopt, nullptr, "perfkit"));
    };
    add(DispatchKey::CPU, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<OnCPU>(*plans, python)));
    if (gradient)
        add(DispatchKey::Autograd, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<UnderAutograd>(*plans, python)));
    return plans;
} catch (const std::exception &error) {
    last_error = error.what();
    return nullptr;
}

/* Add a plan, written by `Operator.remember` in calls.py. */
void perfkit_remember(void *plans, const int64_t *p) {
    auto plan = std::make_shared<Plan>();
    plan->tensors = read_shapes(p, false);
    plan->numbers.resize(static_cast<size_t>(*p++));
    for (Number &number : plan->numbers) number.is_double = *p++, number.bits = *p++;
    plan->kernel = reinterpret_cast<Kernel>(*p++);
    int64_t integers = *p++;
    plan->integers.assign(p, p + integers);
    p += integers;
    plan->doubles.resize(static_cast<size_t>(*p++));
    std::memcpy(plan->doubles.data(), p, plan->doubles.size() * sizeof(double));
    p += plan->doubles.size();
    plan->outputs = read_shapes(p, true);
    if (plan->tensors.size() + plan->outputs.size() + plan->integers.size() > INTEGERS) return;
    if (plan->doubles.size() > DOUBLES) return;
    static_cast<Plans *>(plans)->add(std::move(plan));
}

void perfkit_forget(void *plans) { static_cast<Plans *>(plans)->clear(); }
}

"""The TensorBoard plugin: perfkit's views of everything under the logdir that perfkit can read.

`logdir` finds it, `library` reads it in threads and keeps what was read, `plugin` answers the page's requests. The page
itself is in `reports/tensorboard/`.
"""

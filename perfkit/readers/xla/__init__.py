"""Profiles of XLA (JAX): protobuf and Chrome trace → kernel table."""

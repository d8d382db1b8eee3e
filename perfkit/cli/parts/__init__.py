"""Code that commands share: options, output, sides that are measured now, profiles by Nsight."""

"""What commands share: options, what they show and write, sides that are measured now, profiles by Nsight."""

"""One run or profile to the `Report` that renderers show: what each part takes, by place, kind and cause."""

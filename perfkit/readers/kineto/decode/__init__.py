"""From the bytes of a trace to its events as columns; nothing here knows what they mean to a reader.

stream, pieces      the file's text, whole events at a time
typed, categories   typed events
collect, builder    events as columns, each value that repeats once
events, arrange     the columns of host and device, sorted and nested
read                all of it: `read_events`"""

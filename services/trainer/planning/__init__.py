"""What a run needs and costs before it starts: shapes, memory, operations, time, price; and the presets."""

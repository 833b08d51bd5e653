"""A counter of changes to layers (an attribute was set, a hook was added): a captured function
compares one number to see that its layers are unchanged."""

count = 0

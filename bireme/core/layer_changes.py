"""How often an attribute of any layer was set, or a hook put on, so that a captured function can
tell with one look that its layers are as they were."""

count = 0

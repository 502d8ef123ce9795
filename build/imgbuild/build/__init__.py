"""The last arrows: Plan → local image → suites → name. Everything here touches the engine."""

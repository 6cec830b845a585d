"""import_zoo_group.py - how files of import_zoo.py register the models of a group, and the inputs
that they draw."""

import functools

import torch


class Group:
    """Models of one group: functions that return (module, inputs), by name."""

    def __init__(self, name, prefix):
        self.cases, self.prefix = {}, prefix
        self.groups = {name: self.cases}

    def add(self, name, build):
        self.cases[self.prefix + name] = build

    def case(self, build):
        self.add(build.__name__, build)
        return build

    def module(self, **inputs):
        """Registers a class of modules, with a function for each input."""
        def add(kind):
            self.add(kind.__name__, lambda: (kind(), {k: make() for k, make in inputs.items()}))
            return kind
        return add

    def built_by(self, function):
        """Registers models by the arguments that the function gets for them."""
        def add(name, *args, **more):
            self.add(name, functools.partial(function, *args, **more))
        return add


def f(*shape):
    return lambda: torch.randn(*shape)


def i(high, *shape):
    return lambda: torch.randint(0, high, shape)

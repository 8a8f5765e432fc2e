"""Policies: canonical events in, canonical events out, whichever way the calls among them were written.

Guards                 what the policies and profiles of an exchange ask for; its parts are rows of their YAML
build_chain(guards, …) the guards of one reply, in their order
"""

from vtc.guards.chain import GuardChain, Guards, build_chain
from vtc.guards.content import Rule
from vtc.guards.loops import Loop
from vtc.guards.reactors import Reactor, Then, When

__all__ = ["GuardChain", "Guards", "Loop", "Reactor", "Rule", "Then", "When", "build_chain"]

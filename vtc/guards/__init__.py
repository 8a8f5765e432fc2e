"""Policies: guards that check canonical events, regardless of the dialect or API in which the calls were written.

Guards                       the policies of a profile; its parts are keys of the YAML file
build_chain(guards, …)       the guards on calls of one reply, in their order
build_content_chain(rules)   the guards on its visible text
"""

from vtc.guards.chain import GuardChain, Guards, build_chain, build_content_chain
from vtc.guards.content import Rule
from vtc.guards.loops import Loop
from vtc.guards.reactors import Reactor, Then, When

__all__ = ["GuardChain", "Guards", "Loop", "Reactor", "Rule", "Then", "When", "build_chain", "build_content_chain"]

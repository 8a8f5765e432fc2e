"""A dialect's patterns and some tools -> what a server decodes by: a tree, and its writers.

calls.py            patterns and tools -> the tree of a reply
schema.py           JSON Schema -> the trees of values
text.py             text between markup: it ends where our reader ends it
gbnf.py             the tree -> GBNF (llama.cpp and others)
structural_tag.py   the tree -> a structural tag (vLLM, SGLang, TensorRT-LLM)
json_reply.py       a call that is one JSON object -> JSON Schema (Ollama, LM Studio)
"""

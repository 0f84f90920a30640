"""Commands as tools of an assistant: what ``fwnkf mcp`` offers, and what keeps it inside the folders of the user.

``folders`` says which paths a call may name, and writes results; ``tools`` turns a call into the words of a command;
``worker`` runs that command in a process of its own, inside ``sandbox``; ``server`` speaks the protocol.
"""

def load_mdp(path, reward=None, discount=None):
    raise ValueError("x")

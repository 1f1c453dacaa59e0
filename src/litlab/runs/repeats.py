def without_member(x):
    return x

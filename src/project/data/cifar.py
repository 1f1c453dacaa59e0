"""CIFAR-10 and CIFAR-100."""

from litlab.data import ImageData, PublicImages

_COARSE = "airplane automobile bird cat deer dog frog horse ship truck"
_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""


class CIFAR10Data(ImageData):
    """CIFAR-10 (Krizhevsky 2009): 60,000 images of 3 x 32 x 32 in 10 classes, 10,000 of them to
    test on.
    """

    public = PublicImages(
        name="cifar10",
        reader="CIFAR10",
        file_names=("cifar-10-python.tar.gz",),
        class_names=tuple(_COARSE.split()),
        shape=(3, 32, 32),
    )


class CIFAR100Data(ImageData):
    """CIFAR-100 (Krizhevsky 2009): as CIFAR-10, in 100 classes."""

    public = PublicImages(
        name="cifar100",
        reader="CIFAR100",
        file_names=("cifar-100-python.tar.gz",),
        class_names=tuple(_FINE.split()),
        shape=(3, 32, 32),
    )

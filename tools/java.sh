#!/bin/sh
# Print the home of a Java that can run Spark: 17 or newer, with the module jdk.incubator.vector, which Spark's
# launcher asks for (the runtimes that PyPI carries lack it). Where there is none, install a headless JRE with the
# system's package manager if we may (root, or sudo without a password), else say what to install, and exit 1.
#
# Standard output carries the path alone: JAVA_HOME=$(tools/java.sh). What is said to people goes to standard error.
set -eu

say() { printf '%s\n' "$*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }

# Print the home of the given java program if it can run Spark.
home_of() {
    settings=$("$1" --add-modules jdk.incubator.vector -XshowSettings:properties -version 2>&1) || return 1
    version=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.specification\.version = //p')
    case $version in '' | *[!0-9]*) return 1 ;; esac # 1.8
    [ "$version" -ge 17 ] || return 1
    printf '%s\n' "$settings" | sed -n 's/^ *java\.home = //p'
}

# Print the home of the first Java that can run Spark: the user's choice, the path's, then where systems put one.
find_java() {
    for java in "${JAVA_HOME:-}/bin/java" "$(command -v java)" \
        /usr/lib/jvm/*/bin/java /usr/lib64/jvm/*/bin/java /usr/java/*/bin/java /opt/java/*/bin/java /opt/jdk*/bin/java \
        /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java /opt/homebrew/opt/openjdk*/bin/java \
        /usr/local/opt/openjdk*/bin/java /home/linuxbrew/.linuxbrew/opt/openjdk*/bin/java \
        "${HOME:-}"/.sdkman/candidates/java/current/bin/java "${HOME:-}"/.jdks/*/bin/java; do
        if [ -x "$java" ] && home_of "$java"; then return 0; fi
    done
    return 1
}

give_up() {
    say "$1"
    say "Midstream runs on Spark, which needs Java 17 or newer. Install it and run the same command again:"
    case $packages in
    '') say "    an OpenJDK 17 or 21 (a headless JRE is enough), for instance from https://adoptium.net" ;;
    *) say "    ${sudo_hint}$install ${packages%% *}" ;;
    esac
    case $packages in *' '*) say "    (where that package is not offered, one of: ${packages#* })" ;; esac
    say "A Java in an unusual place is found through JAVA_HOME."
    exit 1
}

if find_java; then exit 0; fi

# Names differ between systems and their releases: the first package that is offered is taken.
if has apt-get; then
    install='apt-get install -y --no-install-recommends'
    packages='openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless'
elif has dnf; then
    install='dnf install -y'
    packages='java-17-openjdk-headless java-21-openjdk-headless java-25-openjdk-headless java-17-amazon-corretto-headless'
elif has apk; then
    install='apk add'
    packages='openjdk17-jre-headless openjdk21-jre-headless openjdk25-jre-headless'
elif has zypper; then
    install='zypper --non-interactive install'
    packages='java-17-openjdk-headless java-21-openjdk-headless java-25-openjdk-headless'
elif has pacman; then
    install='pacman -S --noconfirm'
    packages='jre17-openjdk-headless jre21-openjdk-headless jre25-openjdk-headless'
elif has brew; then
    install='brew install'
    packages='openjdk@17'
else
    install='' packages=''
fi

as_root='' sudo_hint=''
if [ -z "$install" ]; then
    give_up "No Java that can run Spark was found, and no package manager that this script knows."
elif [ "$(id -u)" -ne 0 ] && [ "$install" != 'brew install' ]; then
    sudo_hint='sudo '
    if has sudo && sudo -n true >/dev/null 2>&1; then as_root='sudo -n'; else
        give_up "No Java that can run Spark was found, and installing one needs root."
    fi
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { $as_root env DEBIAN_FRONTEND=noninteractive "$@" >>"$log" 2>&1 </dev/null; }

say "no Java that can run Spark was found: installing one with ${install%% *} (takes about a minute)"
if has apt-get; then run apt-get update || true; fi # a stale list may do
installed=''
for package in $packages; do
    # shellcheck disable=SC2086  # $install is several words
    if run $install "$package"; then installed=$package && break; fi
done
if [ -z "$installed" ]; then
    tail -n 5 "$log" >&2
    give_up "The installation failed; the last words of ${install%% *} are above."
fi
if find_java; then exit 0; fi
say "$installed was installed, but no Java that can run Spark is found. Set JAVA_HOME to the directory it went to."
exit 1

# Sets the compiler for the profile `checked`: it lints what it compiles of the workspace, in the
# same pass, as a second one only to lint takes half as long as a build. To be sourced by whatever
# builds that profile, in the project's folder: builds with and without it share nothing.
if command -v clippy-driver >/dev/null; then
	export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/checked-rustc.sh CLIPPY_ARGS= CHECKED_RUSTC_ARGS=
	# Another version than the one that is installed where there is none may find something new.
	case $(rustc --version) in
	"rustc $(sed -n 's/^rust=//p' scripts/setup.sh) "*)
		CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ CHECKED_RUSTC_ARGS=-Dwarnings ;;
	*) echo "another Rust than that of scripts/setup.sh: what is linted is only told" >&2 ;;
	esac
else
	echo "clippy is not installed: nothing is linted" >&2
	[ -z "${CI-}" ] || exit 1
fi

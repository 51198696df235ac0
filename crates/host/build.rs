//! Makes the bindings to libfabric where it can be had, and says so by `cfg(ofi)`. It needs
//! libfabric's headers (by pkg-config), libclang and a C compiler. Without them everything else is
//! built, and that fabric is refused at run time.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(ofi)");
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "ofi")]
    match ofi::bindings() {
        Ok(()) => println!("cargo::rustc-cfg=ofi"),
        // Cargo cannot see that something was installed.
        Err(why) => println!(
            "cargo::warning=built without libfabric: {why}; after installing that, touch build.rs"
        ),
    }
}

#[cfg(feature = "ofi")]
mod ofi {
    use std::error::Error;
    use std::path::{Path, PathBuf};
    use std::{env, fs, panic};

    /// The oldest version that the fabric was tested with.
    const LIBFABRIC: &str = "1.17";

    const HEADERS: [&str; 7] =
        ["fabric", "fi_domain", "fi_endpoint", "fi_cm", "fi_rma", "fi_eq", "fi_errno"];

    /// All that `fabric::ofi` calls and that is only in headers; the few functions that are in the
    /// library are loaded at run time. What they take and give comes along.
    const FUNCTIONS: &str = "fi_(domain|endpoint|enable|ep_bind|getname|close|av_open|av_insert\
        |cq_open|cq_read|cq_sread|cq_readerr|cq_signal|mr_reg|mr_key|mr_desc|recvmsg|sendmsg\
        |writemsg)";

    /// Writes `ofi.rs` to the output directory, and compiles the functions that are only in
    /// headers.
    pub(super) fn bindings() -> Result<(), Box<dyn Error>> {
        let library = pkg_config::Config::new()
            .atleast_version(LIBFABRIC)
            .cargo_metadata(false)
            .probe("libfabric")
            .map_err(|_| format!("pkg-config finds no libfabric >= {LIBFABRIC}"))?;
        let out = PathBuf::from(env::var("OUT_DIR")?);
        let header = out.join("ofi.h");
        let shim = out.join("ofi_shim.c");
        let includes: String = HEADERS.map(|name| format!("#include <rdma/{name}.h>\n")).concat();
        fs::write(&header, includes)?;
        generate(&library.include_paths, &header, &shim, &out.join("ofi.rs"))?;
        cc::Build::new()
            .file(&shim)
            .includes(&library.include_paths)
            .warnings(false)
            .try_compile("braid_ofi_shim")?;
        Ok(())
    }

    fn generate(
        include: &[PathBuf],
        header: &Path,
        shim: &Path,
        to: &Path,
    ) -> Result<(), Box<dyn Error>> {
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or("a path is not UTF-8");
        let mut builder = bindgen::builder()
            .header(text(header)?)
            .allowlist_function(FUNCTIONS)
            .allowlist_type("fi_info|fi_cq_data_entry")
            .allowlist_var("FI_.*")
            .prepend_enum_name(false)
            .layout_tests(false)
            .generate_comments(false)
            .merge_extern_blocks(true)
            .wrap_static_fns(true)
            .wrap_static_fns_path(text(shim)?);
        for path in include {
            builder = builder.clang_arg(format!("-I{}", text(path)?));
        }
        // bindgen panics where there is no libclang.
        panic::set_hook(Box::new(|_| ()));
        let bindings = panic::catch_unwind(panic::AssertUnwindSafe(move || builder.generate()));
        let _ = panic::take_hook();
        bindings.map_err(|_| "bindgen finds no libclang")??.write_to_file(to)?;
        Ok(())
    }
}

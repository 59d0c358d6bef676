//! What must be built before a lab can run, and only that.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::spec::{Build, Lab, Variant, expand};

/// Finds whywait: the one that WHYWAIT names, or this checkout's own.
pub(crate) fn whywait(labs: &Path) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("WHYWAIT") {
        return Ok(PathBuf::from(given));
    }
    let project = labs
        .parent()
        .context("the labs lie outside of a checkout")?;
    eprintln!("labs: building whywait");
    let mut cargo = cargo(&project.join("Cargo.toml"), &project.join("target"));
    run(cargo.args(["--package", "whywait"]))?;
    Ok(project.join("target/release/whywait"))
}

/// Makes the variant's program, or with LABS_BUILT in the environment takes what is there; returns
/// the folder that it is in.
pub(crate) fn build(labs: &Path, lab: &Lab, variant: &Variant) -> Result<PathBuf> {
    let make = std::env::var_os("LABS_BUILT").is_none();
    for program in &variant.needs {
        // What was made needs no compiler.
        let is_made = !make && program == "cargo";
        ensure!(
            is_made || on_path(program),
            "{} {} needs {program}; see labs/README.md for packages",
            lab.name,
            variant.name
        );
    }
    let Some(name) = &variant.build else {
        return Ok(lab.dir.clone());
    };
    if make {
        eprintln!("labs: building {} ({name})", lab.name);
    }
    let own = labs.join("target/builds").join(&lab.name).join(name);
    match &lab.builds[name] {
        Build::Cargo {
            features,
            rustflags,
        } => {
            // A lab's builds that differ would overwrite each other's program, and those with other
            // flags all that they share.
            let target = match (&features[..], &rustflags[..]) {
                ([], "") => labs.join("target"),
                (features, "") => labs.join("target/builds").join(features.join("+")),
                _ => own,
            };
            let mut cargo = cargo(&labs.join("Cargo.toml"), &target);
            cargo.args(["--package", &lab.name, "--features", &features.join(",")]);
            if !rustflags.is_empty() {
                cargo.env("RUSTFLAGS", rustflags);
            }
            if make {
                run(&mut cargo)?;
            }
            Ok(target.join("release"))
        }
        Build::Command { command } => {
            if !make {
                return Ok(own);
            }
            std::fs::create_dir_all(&own)?;
            let out = own.to_str().context("the labs' path is not UTF-8")?;
            let words = command
                .iter()
                .map(|word| expand(word, &[("out", out)]))
                .collect::<Result<Vec<_>>>()?;
            let (program, args) = words.split_first().context("an empty build command")?;
            run(Command::new(program).args(args).current_dir(&lab.dir))?;
            Ok(own)
        }
    }
}

fn cargo(manifest: &Path, target: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--manifest-path",
        ])
        .arg(manifest);
    cargo.arg("--target-dir").arg(target);
    cargo
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    // Whatever a build prints is progress: stdout is the report's.
    let status = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status();
    let status = status.with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "the build failed ({program}: {status})");
    Ok(())
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps servers where only root's PATH looks.
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    dirs.map(|dir| dir.join(program)).any(|file| file.is_file())
}

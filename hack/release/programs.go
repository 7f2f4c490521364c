package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// platform is an operating system and an architecture, with Go's names.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// all lists the platforms of a release.
var all = []platform{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

func parsePlatforms(list string) ([]platform, error) {
	if strings.TrimSpace(list) == "" {
		return all, nil
	}

	var chosen []platform
	for name := range strings.FieldsSeq(list) {
		i := slices.IndexFunc(all, func(p platform) bool { return p.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("PLATFORMS: %s is none of %v", name, all)
		}
		if !slices.Contains(chosen, all[i]) {
			chosen = append(chosen, all[i])
		}
	}

	return chosen, nil
}

// program is one of the project's programs.
type program struct {
	name, describe string
	image          string // name of the image if the program runs in the cluster
	user           string // user of the image
}

// programs lists the programs of a release. Programs that run in the cluster are for Linux only, the others
// for the machines of users.
var programs = []program{
	{name: "manager", image: "manager", user: "65534", describe: "Webhooks and controllers of Afloat"},
	{name: "daemon", image: "daemon", user: "0",
		describe: "What Afloat does on every node, through the container runtime"},
	{name: "kubectl-afloat", describe: "kubectl afloat: why a rollout waits, and what a change would do"},
	{name: "resourcedistribution-generator",
		describe: "Function of kustomize that makes ResourceDistributions out of files and literals"},
}

// archiveName returns the name of the files of a program for a platform, without suffix.
func (r *release) archiveName(p program, on platform) string {
	return fmt.Sprintf("%s_%s_%s_%s", strings.Replace("afloat-"+p.name, "afloat-kubectl", "kubectl", 1),
		r.version, on.os, on.arch)
}

// binary is a compiled program.
type binary struct {
	program
	platform
	path string
	info *buildinfo.BuildInfo
}

// file returns the file name of the program.
func (b binary) file() string {
	if b.os == "windows" {
		return b.name + ".exe"
	}
	return b.name
}

// binaries holds all programs and their licenses.
type binaries struct {
	dir      string
	all      []binary
	licenses map[string][]byte // by the path of the program
}

func (b *binaries) remove() { os.RemoveAll(b.dir) } //nolint:errcheck // a temporary folder

// The prefixes of the variables that hold the version of a program, and that of kubectl's library in the
// plugin.
const (
	stamp        = "github.com/afloat-project/afloat/internal/platform/version."
	kubectlStamp = "k8s.io/component-base/version."
)

// compile builds every program for each of its platforms.
func (r *release) compile(ctx context.Context) (*binaries, error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}

	built := &binaries{dir: dir}
	for _, p := range r.programs {
		for _, on := range r.platforms {
			if p.image != "" && on.os != "linux" {
				continue
			}
			begin := time.Now()
			b := binary{program: p, platform: on, path: filepath.Join(dir, r.archiveName(p, on))}
			if err := r.compileOne(ctx, &b); err != nil {
				built.remove()
				return nil, fmt.Errorf("build %s for %s: %w", p.name, on, err)
			}
			r.say("%s for %s: %s", p.name, on, time.Since(begin).Round(time.Second))
			built.all = append(built.all, b)
		}
	}

	if built.licenses, err = r.licenses(ctx, built.all); err != nil {
		built.remove()
		return nil, err
	}

	return built, nil
}

func (r *release) compileOne(ctx context.Context, b *binary) error {
	stamps := []string{
		"-s", "-w", "-X " + stamp + "version=" + r.version, "-X " + stamp + "commit=" + r.commit,
	}
	if kubectl := r.kubectl(ctx); b.image == "" && kubectl != "" {
		major, minor, _ := strings.Cut(strings.TrimPrefix(kubectl, "v"), ".")
		minor, _, _ = strings.Cut(minor, ".")
		stamps = append(stamps,
			"-X "+kubectlStamp+"gitVersion="+kubectl,
			"-X "+kubectlStamp+"gitMajor="+major,
			"-X "+kubectlStamp+"gitMinor="+minor)
	}

	// The tag is that of the Makefile, which says what for.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-tags", "grpcnotrace", "-ldflags", strings.Join(stamps, " "), "-o", b.path, "./cmd/"+b.name)
	cmd.Dir = r.root

	// The settings of whoever builds must not change the result.
	cmd.Env = append(os.Environ(), "GOOS="+b.os, "GOARCH="+b.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off",
		"GOEXPERIMENT=", "GOAMD64=", "GOARM64=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, said)
	}

	var err error
	if b.info, err = buildinfo.ReadFile(b.path); err != nil {
		return err
	}
	if b.os == "linux" {
		return checkStatic(b.path)
	}

	return nil
}

// kubectl returns the version of kubectl whose commands the plugin contains, or an empty string. Library
// version 0.37.2 belongs to v1.37.2.
func (r *release) kubectl(ctx context.Context) string {
	out, err := r.goCommand(ctx, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubectl")
	if version, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "v0."); ok && err == nil {
		return "v1." + version
	}
	return ""
}

// checkStatic returns an error if a program needs shared libraries, which its image does not have.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return fmt.Errorf("%s is linked dynamically", path)
	}
	return nil
}

// packed is a file in an archive.
type packed struct {
	name string
	mode int64
	data []byte
}

// archives packs each program together with the licenses.
func (r *release) archives(_ context.Context, built *binaries) error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}

	for _, b := range built.all {
		data, err := os.ReadFile(b.path)
		if err != nil {
			return err
		}
		files := []packed{
			{b.file(), 0o755, data},
			{"LICENSE", 0o644, license},
			{licensesFile, 0o644, built.licenses[b.path]},
		}
		name, pack := r.archiveName(b.program, b.platform)+".tar.gz", tarGz
		if b.os == "windows" {
			name, pack = r.archiveName(b.program, b.platform)+".zip", zipped
		}
		var archive bytes.Buffer
		if err := pack(&archive, files, r.date); err != nil {
			return err
		}
		if err := os.WriteFile(r.path(name), archive.Bytes(), 0o644); err != nil {
			return err
		}
	}

	return nil
}

// tarGz and zipped pack files such that the archive depends only on names, modes, contents and the given
// time.
func tarGz(to io.Writer, files []packed, at time.Time) error {
	z, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}

	w := tar.NewWriter(z)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg,
			Name:     f.name,
			Mode:     f.mode,
			Size:     int64(len(f.data)),
			ModTime:  at,
			Format:   tar.FormatUSTAR,
		}); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}

	if err := w.Close(); err != nil {
		return err
	}

	return z.Close()
}

func zipped(to io.Writer, files []packed, at time.Time) error {
	w := zip.NewWriter(to)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(f.mode))
		entry, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.data); err != nil {
			return err
		}
	}

	return w.Close()
}

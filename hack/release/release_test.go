package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// sources are the project of the tests beside the real manifests: small programs that print their version,
// and a chart.
var sources = map[string]string{
	"go.mod":                                     "module github.com/afloat-project/afloat\n\ngo 1.26\n",
	"LICENSE":                                    "A license\n",
	"docs/releases/v0.1.0.md":                    "# v0.1.0\n\n[Nothing](../operate/a.md).\n",
	"CHANGELOG.md":                               "# Changes\n\n## Unreleased\n\n- Later.\n\n## v0.1.0\n\n- [This](docs/b.md).\n- That.\n\n## v0.0.1\n\n- Before.\n\n## v0.3.0-rc.1\n",
	"docs/releases/v0.4.0.md":                    "# v0.4.0\n",
	"docs/releases/unreleased.md":                "# Unreleased\n",
	"internal/platform/version/version.go":       "package version\n\nvar version, commit string\n\nfunc Get() string { return version + \" \" + commit }\n",
	"cmd/manager/main.go":                        tiny,
	"cmd/daemon/main.go":                         tiny,
	"cmd/kubectl-afloat/main.go":                 tiny,
	"cmd/resourcedistribution-generator/main.go": tiny,
	"charts/kruise/Chart.yaml":                   "apiVersion: v2\nname: kruise # comments stay\nversion: 0.0.0\nappVersion: dev\ndescription: of a test\n",
	"charts/kruise/values.yaml": "manager:\n  # comments stay\n  image:\n    repository: afloat/manager\n    tag: dev\n" +
		"daemon:\n  image:\n    repository: \"afloat/daemon\"\n    tag: \"\"\n",
	"charts/kruise/files/values.yaml": "daemon: {}\nmanager:\n  image:\n    repository: afloat/manager\n",
	"charts/kruise/templates/one.yaml": "containers:\n- image: {{ .Values.daemon.image.repository }}:{{ .Values.daemon.image.tag | default .Chart.AppVersion }}\n" +
		"- image: \"{{ .Values.manager.image.repository }}:{{ .Values.manager.image.tag }}\"\n",
	"charts/kruise/.helmignore":      "*.orig\n",
	"charts/kruise/values.yaml.orig": "what nobody shall get\n",
}

const tiny = "package main\n\nimport \"github.com/afloat-project/afloat/internal/platform/version\"\n\nfunc main() { println(version.Get()) }\n"

// project writes the project of the tests into a folder, whose path differs each time.
func project(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range sources {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(root, "config"), os.DirFS("../../config")); err != nil {
		t.Fatal(err)
	}
	return root
}

const (
	commit     = "0123456789abcdef0123456789abcdef01234567"
	repository = "registry.example.com/afloat"
)

func newRelease(t *testing.T, root string) *release {
	t.Helper()
	return &release{root: root, out: filepath.Join(t.TempDir(), "out"), chart: "charts/kruise", version: "v0.1.0", commit: commit,
		repository: repository, downloads: "https://example.com/v0.1.0", date: time.Unix(1_750_000_000, 0).UTC(),
		platforms: []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"}}, programs: programs,
		say: t.Logf}
}

func (r *release) mustBuild(t *testing.T) {
	t.Helper()
	if err := r.build(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// OPS-211, OPS-212: a release is made twice, in different folders: both have the same bytes, and what is
// looked at in them is what users get. TestOnlyWhatIsCommitted has the refusal,
// TestComponentsOfAProgramWithModules and TestMaterialsAreModulesToo the modules.
func TestRelease(t *testing.T) {
	r, again := newRelease(t, project(t)), newRelease(t, project(t))
	r.mustBuild(t)
	again.mustBuild(t)
	want := []string{
		"SHA256SUMS", "afloat-daemon_v0.1.0_image.tar",
		"afloat-daemon_v0.1.0_linux_amd64.cdx.json", "afloat-daemon_v0.1.0_linux_amd64.tar.gz",
		"afloat-daemon_v0.1.0_linux_arm64.cdx.json", "afloat-daemon_v0.1.0_linux_arm64.tar.gz", "afloat-manager_v0.1.0_image.tar",
		"afloat-manager_v0.1.0_linux_amd64.cdx.json", "afloat-manager_v0.1.0_linux_amd64.tar.gz",
		"afloat-manager_v0.1.0_linux_arm64.cdx.json", "afloat-manager_v0.1.0_linux_arm64.tar.gz",
		"afloat-resourcedistribution-generator_v0.1.0_linux_amd64.cdx.json", "afloat-resourcedistribution-generator_v0.1.0_linux_amd64.tar.gz",
		"afloat-resourcedistribution-generator_v0.1.0_linux_arm64.cdx.json", "afloat-resourcedistribution-generator_v0.1.0_linux_arm64.tar.gz",
		"afloat-resourcedistribution-generator_v0.1.0_windows_amd64.cdx.json", "afloat-resourcedistribution-generator_v0.1.0_windows_amd64.zip",
		"afloat.yaml", "crds.yaml", "images.txt",
		"install-external-certs.yaml", "install.yaml", "kruise-0.1.0.tgz",
		"kubectl-afloat_v0.1.0_linux_amd64.cdx.json", "kubectl-afloat_v0.1.0_linux_amd64.tar.gz",
		"kubectl-afloat_v0.1.0_linux_arm64.cdx.json", "kubectl-afloat_v0.1.0_linux_arm64.tar.gz",
		"kubectl-afloat_v0.1.0_windows_amd64.cdx.json", "kubectl-afloat_v0.1.0_windows_amd64.zip", "provenance.intoto.json",
		"release-notes.md",
	}
	names, err := r.files()
	if err != nil || !slices.Equal(names, want) {
		t.Fatalf("%v, %q", err, names)
	}
	for _, name := range names {
		if !bytes.Equal(read(t, r.path(name)), read(t, again.path(name))) {
			t.Errorf("%s is not the same in the second release", name)
		}
	}
	for name, test := range map[string]func(*testing.T, *release){
		"archives": testArchives, "images": testImages, "components": testComponents, "provenance": testProvenance,
		"manifests": testManifests, "chart": testChart, "krew": testKrew, "checksums": testChecksums, "push": testPush,
	} {
		t.Run(name, func(t *testing.T) { test(t, r) })
	}
	if got := string(read(t, r.path(notesFile))); got != "# v0.1.0\n\n[Nothing]("+source+
		"/blob/v0.1.0/docs/operate/a.md).\n\n## All changes\n\n- [This]("+source+"/blob/v0.1.0/docs/b.md).\n- That.\n" {
		t.Errorf("%q", got)
	}
	t.Run("folder", func(t *testing.T) { testFolder(t, again) })
}

// sha256sum of every system agrees, and whatever is changed, added or taken away shows.
func testChecksums(t *testing.T, r *release) {
	if err := r.verify(); err != nil {
		t.Fatal(err)
	}
	if sha256sum, err := exec.LookPath("sha256sum"); err == nil {
		cmd := exec.CommandContext(t.Context(), sha256sum, "-c", "--strict", checksums)
		cmd.Dir = r.out
		if said, err := cmd.CombinedOutput(); err != nil || strings.Count(string(said), ": OK\n") != 30 {
			t.Errorf("%v\n%s", err, said)
		}
	}
	copied := &release{out: t.TempDir()}
	for want, change := range map[string]func() error{
		"install.yaml is not as it was made": func() error { return os.WriteFile(copied.path("install.yaml"), nil, 0o644) },
		"crds.yaml is missing":               func() error { return os.Remove(copied.path("crds.yaml")) },
		"more.yaml is not in SHA256SUMS":     func() error { return os.WriteFile(copied.path("more.yaml"), nil, 0o644) },
	} {
		copied.out = filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(copied.out, os.DirFS(r.out)); err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := copied.verify(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if err := copied.push(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pushed: %v, want %s", err, want)
		}
	}
}

// The folder of an earlier release is emptied, and no other.
func testFolder(t *testing.T, r *release) {
	mine := r.path("mine.txt")
	if err := os.WriteFile(mine, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.empty(); err == nil || !strings.Contains(err.Error(), "mine.txt") {
		t.Errorf("%v", err)
	}
	if names, err := r.files(); err != nil || len(names) != 32 {
		t.Errorf("%v, %q", err, names)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if err := r.empty(); err != nil {
		t.Error(err)
	}
	if names, err := r.files(); err != nil || len(names) != 0 {
		t.Errorf("%v, %q", err, names)
	}
	if err := os.WriteFile(mine, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.empty(); err == nil {
		t.Error("a folder that is not of a release is emptied")
	}
}

// What cannot become a release is refused before anything is compiled.
func TestWhatCannotBecomeAReleaseIsRefusedFirst(t *testing.T) {
	root := project(t)
	for want, change := range map[string]func(*release){
		"VERSION":                  func(r *release) { r.version = "0.1.0" },
		"VERSION \"v0.1\"":         func(r *release) { r.version = "v0.1" },
		"VERSION \"v0.1.0+x\"":     func(r *release) { r.version = "v0.1.0+x" },
		"REPOSITORY":               func(r *release) { r.repository = "" },
		"DOWNLOADS":                func(r *release) { r.downloads = "http://example.com" },
		"OUT":                      func(r *release) { r.out = "" },
		"no section":               func(r *release) { r.version = "v0.4.0" },
		"the release has no notes": func(r *release) { r.version = "v0.2.0" },
	} {
		r := newRelease(t, root)
		change(r)
		if err := r.build(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	r := newRelease(t, root)
	r.version = "v0.2.0-rc.1" // its notes are those of what is not released
	if err := r.check(); err != nil {
		t.Error(err)
	}
	if _, err := parsePlatforms("linux/riscv64"); err == nil {
		t.Error("a platform that nobody tests")
	}
	if got, err := parsePlatforms("linux/arm64 linux/arm64"); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// A release that fails leaves its folder empty, so that the next one can be made.
func TestNothingIsLeftOfAFailedRelease(t *testing.T) {
	r := newRelease(t, project(t))
	r.programs = nil // so that the manifests have images of which it knows nothing
	for range 2 {
		if err := r.build(t.Context()); err == nil || !strings.Contains(err.Error(), "manifests: install.yaml has the image afloat/") {
			t.Fatal(err)
		}
		if names, err := r.files(); err != nil || len(names) != 0 {
			t.Errorf("%v, %q", err, names)
		}
	}
}

// OPS-130 (part), OPS-001 (part): the platforms of the plugin, and of what runs in the cluster.
func TestEveryPlatformOfThePluginIsADefault(t *testing.T) {
	got, err := parsePlatforms("")
	if err != nil {
		t.Fatal(err)
	}
	for _, os := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			if !slices.Contains(got, platform{os, arch}) {
				t.Errorf("no %s/%s", os, arch)
			}
		}
	}
}

// What is not committed is not released.
func TestOnlyWhatIsCommitted(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=1750000000 +0200", "GIT_CONFIG_GLOBAL=/dev/null")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "first")
	r := &release{root: root}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if err := r.fromGit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.commit) != 40 || r.date.Unix() != 1_750_000_000 || r.date.Location() != time.UTC {
		t.Errorf("%s %s", r.commit, r.date)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "5")
	if err := r.fromGit(t.Context()); err != nil || r.date.Unix() != 5 {
		t.Errorf("%v %s", err, r.date)
	}
	if err := os.WriteFile(filepath.Join(root, "new.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.fromGit(t.Context()); err == nil || !strings.Contains(err.Error(), "new.go") {
		t.Errorf("%v", err)
	}
}

// own is whether this machine runs programs of the platform.
func own(p platform) bool { return p == platform{runtime.GOOS, runtime.GOARCH} }

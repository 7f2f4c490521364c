package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	helmregistry "helm.sh/helm/v4/pkg/registry"
	"sigs.k8s.io/yaml"
)

// OPS-130 (part): what krew does with the manifest works on every platform: it downloads the archive,
// compares its checksum, and takes the program and the license out of it.
func testKrew(t *testing.T, r *release) {
	p := krewPlugin{}
	if err := yaml.UnmarshalStrict(read(t, r.path("afloat.yaml")), &p); err != nil {
		t.Fatal(err)
	}
	if err := p.validate(); err != nil {
		t.Error(err)
	}
	if p.Metadata.Name != "afloat" || p.Spec.Version != "v0.1.0" || len(p.Spec.Platforms) != len(r.platforms) {
		t.Errorf("%+v", p)
	}
	server := httptest.NewServer(http.StripPrefix("/v0.1.0", http.FileServer(http.Dir(r.out))))
	defer server.Close()
	for i, on := range p.Spec.Platforms {
		if got := (platform{on.Selector.MatchLabels["os"], on.Selector.MatchLabels["arch"]}); got != r.platforms[i] {
			t.Errorf("%s, want %s", got, r.platforms[i])
		}
		file, ok := strings.CutPrefix(on.URI, "https://example.com/")
		if !ok {
			t.Fatalf("%s is not below DOWNLOADS", on.URI)
		}
		answer, err := server.Client().Get(server.URL + "/" + file) //nolint:noctx // on this machine
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", on.URI, answer.Status, err)
		}
		answer.Body.Close()
		downloaded := filepath.Join(t.TempDir(), "archive")
		if err := os.WriteFile(downloaded, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if sum, err := checksum(downloaded); err != nil || sum != on.SHA256 {
			t.Errorf("%s has checksum %s, %v", on.URI, sum, err)
		}
		files := unpackArchive(t, on.URI, data)
		for _, f := range on.Files {
			if len(files[f.From]) == 0 || f.To != "." {
				t.Errorf("%s has no %s", on.URI, f.From)
			}
		}
		if own(r.platforms[i]) {
			runs(t, files[on.Bin])
		}
	}
}

// Each rule of krew's index refuses what breaks it.
func TestKrewRulesRefuseWhatBreaksThem(t *testing.T) {
	good := func() krewPlugin {
		p := krewPlugin{}
		p.APIVersion, p.Kind, p.Metadata.Name = "krew.googlecontainertools.github.com/v1alpha2", "Plugin", "afloat"
		p.Spec = krewSpec{Version: "v0.1.0", Homepage: source, ShortDescription: "Short", Description: "Long"}
		on := krewPlatform{URI: "https://example.com/a.tar.gz", SHA256: strings.Repeat("0a", 32), Bin: "kubectl-afloat",
			Files: []krewFile{{"kubectl-afloat", "."}, {"LICENSE", "."}}}
		on.Selector.MatchLabels = map[string]string{"os": "linux", "arch": "amd64"}
		p.Spec.Platforms = []krewPlatform{on}
		return p
	}
	if err := good().validate(); err != nil {
		t.Fatal(err)
	}
	for want, breaks := range map[string]func(*krewPlugin, *krewPlatform){
		"is not what krew reads":        func(p *krewPlugin, _ *krewPlatform) { p.Kind = "Plugins" },
		"no name of a plugin":           func(p *krewPlugin, _ *krewPlatform) { p.Metadata.Name = "kubectl-afloat" },
		"is no version":                 func(p *krewPlugin, _ *krewPlatform) { p.Spec.Version = "0.1.0" },
		"no short description":          func(p *krewPlugin, _ *krewPlatform) { p.Spec.ShortDescription = strings.Repeat("long ", 11) },
		"homepage is missing":           func(p *krewPlugin, _ *krewPlatform) { p.Spec.Homepage = "" },
		"no platform":                   func(p *krewPlugin, _ *krewPlatform) { p.Spec.Platforms = nil },
		"selects by something else":     func(_ *krewPlugin, on *krewPlatform) { delete(on.Selector.MatchLabels, "arch") },
		"is there twice":                func(p *krewPlugin, on *krewPlatform) { p.Spec.Platforms = append(p.Spec.Platforms, *on) },
		"is no SHA-256":                 func(_ *krewPlugin, on *krewPlatform) { on.SHA256 = "0" },
		"no archive that krew unpacks":  func(_ *krewPlugin, on *krewPlatform) { on.URI = "https://example.com/a.tar.xz" },
		"is no program of linux":        func(_ *krewPlugin, on *krewPlatform) { on.Bin = "kubectl-afloat.exe" },
		"leads out of the archive":      func(_ *krewPlugin, on *krewPlatform) { on.Files[0].To = "../.." },
		"LICENSE is not among the file": func(_ *krewPlugin, on *krewPlatform) { on.Files = on.Files[:1] },
	} {
		p := good()
		breaks(&p, &p.Spec.Platforms[0])
		if err := p.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// testPush makes the release once more for a registry on this machine, pushes it, and pulls it as nodes and
// helm do.
func testPush(t *testing.T, r *release) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	if err := r.push(t.Context()); err == nil { // nobody answers there
		t.Error("pushed to nowhere")
	}
	host := strings.TrimPrefix(server.URL, "http://")
	local := newRelease(t, r.root)
	local.repository = host + "/afloat"
	local.mustBuild(t)
	other := *local
	other.repository = host + "/other"
	if err := other.push(t.Context()); err == nil || !strings.Contains(err.Error(), "made for another REPOSITORY") {
		t.Errorf("%v", err)
	}
	for range 2 { // the second time all of it is there
		if err := local.push(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range programs[:2] {
		for _, on := range []string{"amd64", "arm64"} {
			ref, err := name.ParseReference(local.imageName(p))
			if err != nil {
				t.Fatal(err)
			}
			img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: on}))
			if err != nil {
				t.Fatal(err)
			}
			testImage(t, local, p, platform{"linux", on}, img)
		}
	}
	client, err := helmregistry.NewClient(helmregistry.ClientOptPlainHTTP())
	if err != nil {
		t.Fatal(err)
	}
	chart, err := client.Pull(local.repository + "/charts/kruise:0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	if string(chart.Chart.Data) != string(read(t, local.path("kruise-0.1.0.tgz"))) {
		t.Error("helm gets another chart")
	}
	values := filepath.Join(local.root, local.chart, "values.yaml")
	before := read(t, values)
	if err := os.WriteFile(values, append([]byte("more: true\n"), before...), 0o644); err != nil {
		t.Fatal(err)
	}
	local.mustBuild(t) // of the same images, with another chart
	if err := local.push(t.Context()); err == nil || !strings.Contains(err.Error(), "charts/kruise:0.1.0 is there already, and differs") {
		t.Errorf("a released chart was changed: %v", err)
	}
	if err := os.WriteFile(values, before, 0o644); err != nil {
		t.Fatal(err)
	}
	changed := newRelease(t, r.root)
	changed.repository, changed.commit = local.repository, strings.Repeat("f", 40)
	changed.mustBuild(t)
	if err := changed.push(t.Context()); err == nil || !strings.Contains(err.Error(), "a release is not changed") {
		t.Errorf("a released image was changed: %v", err)
	}
}

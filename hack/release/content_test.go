package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// unpackArchive returns what is in an archive of a program.
func unpackArchive(t *testing.T, name string, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	if strings.HasSuffix(name, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			opened, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			if files[f.Name], err = io.ReadAll(opened); err != nil {
				t.Fatal(err)
			}
		}
		return files
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for f, mode := range untar(t, z) {
		files[f] = mode.data
	}
	return files
}

func untar(t *testing.T, from io.Reader) map[string]packed {
	t.Helper()
	files := map[string]packed{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = packed{h.Name, h.Mode, data}
	}
}

// runs checks that a program of this machine's platform tells the version.
func runs(t *testing.T, program []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), path).CombinedOutput(); err != nil || string(said) != "v0.1.0 "+commit+"\n" {
		t.Errorf("%v, %q", err, said)
	}
}

// OPS-210 (part): programs of all platforms, with licenses, that tell what they were built from.
func testArchives(t *testing.T, r *release) {
	for _, on := range r.platforms {
		for _, p := range r.programs {
			if p.image != "" && on.os != "linux" {
				continue
			}
			name, file := r.archiveName(p, on)+".tar.gz", p.name
			if on.os == "windows" {
				name, file = r.archiveName(p, on)+".zip", p.name+".exe"
			}
			files := unpackArchive(t, name, read(t, r.path(name)))
			if len(files) != 3 || string(files["LICENSE"]) != "A license\n" {
				t.Errorf("%s has %d files", name, len(files))
			}
			if !strings.Contains(string(files[licensesFile]), "==== Go: LICENSE") {
				t.Errorf("%s is without the license of Go", name)
			}
			info, err := buildinfo.Read(bytes.NewReader(files[file]))
			if err != nil {
				t.Fatal(err)
			}
			if text := info.String(); !strings.Contains(text, "GOOS="+on.os) || !strings.Contains(text, "GOARCH="+on.arch) ||
				!strings.Contains(text, "CGO_ENABLED=0") || !strings.Contains(text, "-trimpath=true") || strings.Contains(text, "vcs.") {
				t.Errorf("%s: %s", name, text)
			}
			if own(on) {
				runs(t, files[file])
			}
		}
	}
}

// OPS-001 (part), OPS-002 (part): images for every platform hold their program, licenses, accounts and
// authorities, and no shell; the manager is not root.
func testImages(t *testing.T, r *release) {
	list := string(read(t, r.path(imagesFile)))
	for _, p := range r.programs[:2] {
		index, err := readLayout(r.path(r.imageFile(p)), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
		digest, err := index.Digest()
		if err != nil || !strings.Contains(list, fmt.Sprintf("%s/%s:v0.1.0@%s\n", repository, p.name, digest)) {
			t.Errorf("%v, %s is not in\n%s", err, digest, list)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var platforms []string
		for _, d := range manifest.Manifests {
			platforms = append(platforms, d.Platform.String())
			img, err := index.Image(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			testImage(t, r, p, platform{d.Platform.OS, d.Platform.Architecture}, img)
		}
		if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
			t.Errorf("%s is for %s", p.name, platforms)
		}
		top := untar(t, bytes.NewReader(read(t, r.path(r.imageFile(p)))))["index.json"].data
		if want := `"io.containerd.image.name":"` + repository + "/" + p.name + `:v0.1.0"`; !strings.Contains(strings.ReplaceAll(string(top), " ", ""), want) {
			t.Errorf("containerd would not know the name: %s", top)
		}
	}
}

func testImage(t *testing.T, r *release, p program, on platform, img v1.Image) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != on.os || config.Architecture != on.arch || config.Config.User != p.user || !config.Created.Equal(r.date) ||
		!slices.Equal(config.Config.Entrypoint, []string{"/" + p.name}) ||
		config.Config.Labels["org.opencontainers.image.revision"] != commit {
		t.Errorf("%s of %s: %+v", p.name, on, config)
	}
	flat := mutate.Extract(img)
	defer flat.Close()
	files := untar(t, flat)
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{p.name, "etc/", "etc/group", "etc/passwd", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt",
		"licenses/", "licenses/LICENSE", "licenses/" + licensesFile, "tmp/"}
	slices.Sort(want)
	for i := range names { // folders come with and without a slash
		names[i] = strings.TrimSuffix(names[i], "/")
		want[i] = strings.TrimSuffix(want[i], "/")
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	if files[p.name].mode != 0o755 {
		t.Errorf("the program has mode %o", files[p.name].mode)
	}
	inArchive := unpackArchive(t, "", read(t, r.path(r.archiveName(p, on)+".tar.gz")))[p.name]
	if !bytes.Equal(files[p.name].data, inArchive) {
		t.Error("image and archive have different programs")
	}
	authorities := 0
	for block, rest := pem.Decode(files["etc/ssl/certs/ca-certificates.crt"].data); block != nil; block, rest = pem.Decode(rest) {
		authorities++
	}
	if authorities < 50 {
		t.Errorf("%d certificate authorities", authorities)
	}
}

func testComponents(t *testing.T, r *release) {
	lists, err := filepath.Glob(r.path("*" + bomEnd))
	if err != nil || len(lists) != 10 {
		t.Fatalf("%v, %q", err, lists)
	}
	serials := map[string]bool{}
	for _, path := range lists {
		bom := &cdx.BOM{}
		if err := cdx.NewBOMDecoder(bytes.NewReader(read(t, path)), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
			t.Fatal(err)
		}
		serials[bom.SerialNumber] = true
		if bom.SpecVersion != cdx.SpecVersion1_6 || bom.Metadata.Component.Version != "v0.1.0" ||
			bom.Metadata.Timestamp != "2025-06-15T15:06:40Z" || (*bom.Components)[0].Name != "std" {
			t.Errorf("%s: %+v", path, bom.Metadata.Component)
		}
	}
	if len(serials) != len(lists) {
		t.Errorf("serials are not of one program each: %v", serials)
	}
}

// The list of a program with modules, of which this test is one, has each of them, as the compiler recorded
// it.
func TestComponentsOfAProgramWithModules(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	r := newRelease(t, "../..")
	bom := r.bom(binary{program: programs[0], platform: r.platforms[0], info: info}, strings.Repeat("0", 64))
	if len(*bom.Components) != len(info.Deps)+1 || len(info.Deps) < 20 {
		t.Fatalf("%d components, %d modules", len(*bom.Components), len(info.Deps))
	}
	for i, m := range info.Deps {
		c := (*bom.Components)[i+1]
		if c.Name != m.Path || c.Version != m.Version || !strings.HasPrefix(c.PackageURL, "pkg:golang/"+m.Path+"@v") ||
			strings.Contains(c.PackageURL, "+") || (*c.Properties)[0].Value != m.Sum {
			t.Errorf("%+v is not %+v", c, m)
		}
	}
	r.programs, r.root = programs[:1], "."
	texts, err := r.licenses(t.Context(), []binary{{program: programs[0], info: info, path: "self"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		if !strings.Contains(string(texts["self"]), "\n==== "+moduleID(m)+": ") {
			t.Errorf("no license of %s", moduleID(m))
		}
	}
	if err := writeLicenses(io.Discard, "example.com/none v1.0.0", t.TempDir()); err == nil {
		t.Error("a module without a license is passed on")
	}
}

func testProvenance(t *testing.T, r *release) {
	statement, predicate := &intoto.Statement{}, &slsa.Provenance{}
	if err := protojson.Unmarshal(read(t, r.path(provenanceFile)), statement); err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(statement.GetPredicate())
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(text, predicate); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(statement.Validate(), predicate.Validate()); err != nil {
		t.Error(err)
	}
	if statement.GetPredicateType() != "https://slsa.dev/provenance/v1" || predicate.GetRunDetails().GetBuilder().GetId() != localBuilder {
		t.Errorf("%s by %s", statement.GetPredicateType(), predicate.GetRunDetails().GetBuilder().GetId())
	}
	// OPS-212 (part): just the files, and the images.
	want, err := r.readChecksums()
	if err != nil {
		t.Fatal(err)
	}
	delete(want, provenanceFile)
	for line := range strings.Lines(string(read(t, r.path(imagesFile)))) {
		name, digest, _ := strings.Cut(strings.TrimSpace(line), "@sha256:")
		want[name] = digest
	}
	if len(statement.GetSubject()) != len(want) || len(want) != 31 {
		t.Errorf("%d subjects, want %d", len(statement.GetSubject()), len(want))
	}
	for _, s := range statement.GetSubject() {
		if want[s.GetName()] != s.GetDigest()["sha256"] {
			t.Errorf("%s has %s, want %s", s.GetName(), s.GetDigest()["sha256"], want[s.GetName()])
		}
	}
	of := predicate.GetBuildDefinition().GetResolvedDependencies()
	if len(of) != 2 || of[0].GetDigest()["gitCommit"] != commit || !strings.HasPrefix(of[1].GetName(), "go1.") {
		t.Errorf("made from %v", of)
	}
}

func TestMaterialsAreModulesToo(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	materials, err := newRelease(t, "").materials(&binaries{all: []binary{{info: info}, {info: info}}})
	if err != nil || len(materials) != len(info.Deps)+2 {
		t.Fatalf("%v, %d of %d", err, len(materials), len(info.Deps))
	}
	for _, m := range materials {
		if err := m.Validate(); err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
}

func testManifests(t *testing.T, r *release) {
	kinds := map[string]map[string]int{}
	for _, m := range manifestFiles {
		namespaces, webhooks := map[string]bool{}, false
		kinds[m.file] = map[string]int{}
		text := string(read(t, r.path(m.file)))
		for document := range strings.SplitSeq(text, "\n---\n") {
			object := struct {
				Kind     string
				Metadata struct{ Name, Namespace string }
			}{}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			kinds[m.file][object.Kind]++
			// One kubectl apply is enough on an empty cluster, and no webhook is asked before there is all
			// that answers it.
			namespaces[object.Metadata.Name] = namespaces[object.Metadata.Name] || object.Kind == "Namespace"
			if in := object.Metadata.Namespace; in != "" && !namespaces[in] {
				t.Errorf("%s has %s %s before its namespace", m.file, object.Kind, object.Metadata.Name)
			}
			if is := strings.HasSuffix(object.Kind, "WebhookConfiguration"); webhooks && !is {
				t.Errorf("%s has %s %s after a configuration of webhooks", m.file, object.Kind, object.Metadata.Name)
			} else {
				webhooks = is
			}
			if object.Kind != "Deployment" && object.Kind != "DaemonSet" {
				continue
			}
			workload := struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}{}
			if err := yaml.Unmarshal([]byte(document), &workload); err != nil {
				t.Fatal(err)
			}
			name := map[string]string{"Deployment": "manager", "DaemonSet": "daemon"}[object.Kind]
			for _, c := range workload.Spec.Template.Spec.Containers {
				if want := repository + "/" + name + ":v0.1.0"; c.Image != want {
					t.Errorf("%s has %s, want %s", m.file, c.Image, want)
				}
			}
		}
	}
	definitions, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for file, has := range kinds {
		if has["CustomResourceDefinition"] != len(definitions) || (file != "crds.yaml") != (has["Deployment"] == 1 && has["DaemonSet"] == 1) ||
			(file == "install-external-certs.yaml") != (has["Certificate"] > 0) || file == "crds.yaml" && len(has) != 1 {
			t.Errorf("%s has %v", file, has)
		}
	}
}

func testChart(t *testing.T, r *release) {
	c, err := loader.LoadFile(r.path("kruise-0.1.0.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != "kruise" || c.Metadata.Version != "0.1.0" || c.Metadata.AppVersion != "v0.1.0" {
		t.Errorf("%+v", c.Metadata)
	}
	values, err := json.Marshal(c.Values)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"daemon":{"image":{"repository":"` + repository + `/daemon","tag":""}},` +
		`"manager":{"image":{"repository":"` + repository + `/manager","tag":"v0.1.0"}}}`
	if string(values) != want {
		t.Errorf("%s", values)
	}
	var names []string
	for _, f := range c.Raw {
		names = append(names, f.Name)
		if f.Name == "files/values.yaml" && !strings.Contains(string(f.Data), repository+"/manager\n") {
			t.Errorf("%s", f.Data)
		}
		if f.Name == "values.yaml" && !strings.Contains(string(f.Data), "# comments stay") {
			t.Errorf("%s", f.Data)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{".helmignore", "Chart.yaml", "files/values.yaml", "templates/one.yaml", "values.yaml"}) {
		t.Errorf("%q", names)
	}
}

// A chart that installs something else is no chart of this release.
func TestChartsThatAreRefused(t *testing.T) {
	for want, file := range map[string]struct{ name, content string }{
		"Chart.yaml has not one line": {"Chart.yaml", "apiVersion: v2\nname: kruise\nversion: 0.0.0\n"},
		"has the image example.com/daemon:v0.1.0": {"values.yaml", "daemon: {image: {repository: example.com/daemon, tag: ''}}\n" +
			"manager: {image: {repository: x, tag: dev}}\nother: " + repository + "/daemon:v0.1.0\n"},
		"does not install " + repository + "/daemon:v0.1.0": {"templates/one.yaml", "- image: {{ .Values.manager.image.repository }}:v0.1.0\n"},
		"execution error": {"templates/one.yaml", "{{ fail \"no\" }}\n"},
	} {
		r := newRelease(t, project(t))
		if err := os.WriteFile(filepath.Join(r.root, r.chart, file.name), []byte(file.content), 0o644); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(want, "has the image") { // so that all that should be there is, too
			if err := os.WriteFile(filepath.Join(r.root, r.chart, "templates/two.yaml"),
				[]byte("# "+repository+"/manager:v0.1.0 {{ .Values.other }}\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(r.out, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := r.packageChart(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The chart of the project becomes one of a release.
func TestChartOfTheProject(t *testing.T) {
	r := newRelease(t, "../..")
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.packageChart(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

package choose

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
)

var update = flag.Bool("update", false, "write the golden files anew")

// world is what a chooser asks, in memory.
type world struct {
	index      Index
	namespaces map[string]map[string]string
	revisions  []*appsv1.ControllerRevision
	err        error
	random     float64
	asked      int
	sortByName bool
	pods       [][]byte
}

func (w *world) Labels(_ context.Context, name string) (map[string]string, error) {
	w.asked++
	if found, ok := w.namespaces[name]; ok && w.err == nil {
		return found, nil
	}
	return nil, fmt.Errorf("namespace %s: %w", name, w.err)
}

func (w *world) Get(_ context.Context, name string) (*appsv1.ControllerRevision, error) {
	for _, r := range w.revisions {
		if r.Name == name {
			return r, w.err
		}
	}
	return nil, w.err
}

func (w *world) OfVersion(_ context.Context, set, version string) (found []*appsv1.ControllerRevision, err error) {
	for _, r := range w.revisions {
		if r.Labels[pub.SidecarSetName] == set && r.Labels[pub.SidecarSetCustomVersion] == version {
			found = append(found, r)
		}
	}
	return found, w.err
}

func (w *world) chooser() *Selector {
	return NewChooser(&w.index, w, w, func() float64 { return w.random })
}

// revisionOf is the ControllerRevision of a SidecarSet.
func revisionOf(t testing.TB, name string, set *appsv1beta1.SidecarSet, number int64) *appsv1.ControllerRevision {
	t.Helper()
	content, err := sidecarset.Content(&set.Spec)
	if err != nil {
		t.Fatal(err)
	}
	r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("u-" + name),
		ResourceVersion: fmt.Sprint(number), Annotations: set.Annotations,
		Labels: map[string]string{pub.SidecarSetName: set.Name, pub.SidecarSetCustomVersion: set.Spec.CustomVersion}}, Revision: number}
	r.Data.Raw = content
	return r
}

// admitted gives a SidecarSet what its webhook gives it.
func admitted(t testing.TB, set *appsv1beta1.SidecarSet) *appsv1beta1.SidecarSet {
	t.Helper()
	sidecarset.SetDefaults(&set.Spec)
	hash, err := sidecarset.Hash(&set.Spec)
	if err != nil {
		t.Fatal(err)
	}
	imageless, err := sidecarset.HashWithoutImage(&set.Spec)
	if err != nil {
		t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, pub.SidecarSetHash, hash)
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, pub.SidecarSetHashWithoutImage, imageless)
	return set
}

// read fills a world from documents: SidecarSets, Namespaces, Pods, Options, and SidecarSets of kind
// Revision, which are old ones.
func read(t testing.TB, text string) *world {
	t.Helper()
	w := &world{namespaces: map[string]map[string]string{}}
	for document := range strings.SplitSeq(text, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		var head struct {
			Kind       string
			Metadata   metav1.ObjectMeta
			Random     float64
			SortByName bool
			Revision   int64
			Of         string
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			t.Fatal(err)
		}
		set := &appsv1beta1.SidecarSet{}
		if head.Kind == "SidecarSet" || head.Kind == "Revision" {
			if err := json.Unmarshal(raw, set); err != nil {
				t.Fatal(err)
			}
			admitted(t, set)
		}
		switch head.Kind {
		case "SidecarSet":
			w.index.Set(set)
		case "Revision":
			set.Name = head.Of
			w.revisions = append(w.revisions, revisionOf(t, head.Metadata.Name, set, head.Revision))
		case "Namespace":
			w.namespaces[head.Metadata.Name] = head.Metadata.Labels
		case "Options":
			w.random, w.sortByName = head.Random, head.SortByName
		case "Pod":
			w.pods = append(w.pods, raw)
		default:
			t.Fatalf("a document of kind %q", head.Kind)
		}
	}
	return w
}

// inject is what the webhook does with a pod.
func (w *world) inject(t testing.TB, raw []byte) ([]byte, []string, error) {
	t.Helper()
	pod := &corev1.Pod{}
	if err := json.Unmarshal(raw, pod); err != nil {
		t.Fatal(err)
	}
	templates, err := w.chooser().Choose(t.Context(), pod, pod.Namespace)
	if err != nil {
		return nil, nil, err
	}
	result, err := inject.Inject(raw, pod, templates,
		inject.Options{SortByName: w.sortByName, Now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)})
	if err != nil || len(result.Operations) == 0 {
		return raw, result.Warnings, err
	}
	text, err := json.Marshal(result.Operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := patch.Apply(raw)
	if err != nil {
		t.Fatalf("applying the patch %s: %v", text, err)
	}
	return out, result.Warnings, nil
}

// goldens are the files of testdata, with what they show.
var goldens = map[string]string{
	"canary":       "SS-070, SS-091, SS-175",
	"cold":         "SS-002, SS-004, SS-084, SS-003, SS-080, SS-083, SS-102, SS-105, SS-106, SS-115, SS-180, SS-182, SS-295",
	"duplicate":    "SS-104",
	"hot-latest":   "SS-127, SS-174, SS-294",
	"hot-volumes":  "SS-105, SS-110, SS-111 (part), SS-112 (part), SS-116 (part), SS-117, SS-118 (part), SS-126",
	"hot":          "SS-110, SS-125 to SS-127, SS-174, SS-294",
	"init":         "SS-011, SS-101, SS-102, SS-113, SS-115, SS-119, SS-D19",
	"metadata":     "SS-150, SS-151, SS-090",
	"order-sorted": "SS-100",
	"order":        "SS-092, SS-093, SS-100, SS-102",
	"records":      "SS-094, SS-180, SS-182",
	"refused":      "SS-094, SS-131, SS-137, SS-142, SS-152, SS-172, SS-D18, SS-D24",
	"replaced":     "SS-103",
	"resources":    "SS-127, SS-130, SS-132 (part), SS-133 (part), SS-134, SS-135 (part), SS-136 (part), SS-D13",
	"revisions":    "SS-170, SS-171, SS-173, SS-174, SS-181",
	"unknown":      "SS-D24, SS-255",
	"volumes":      "SS-115, SS-D07, SS-W08",
}

// Each file of testdata is what is in a cluster, and pods; beside it is what becomes of the pods. The comment
// at its head names what is shown. A pod that passes twice does not change the second time (SS-107).
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatalf("unexpected error: %v\n%q", err, files)
	} else if len(files) == 0 {
		t.Fatalf("files: got none, want some\n%q\n%v", files, err)
	}
	if len(files) != len(goldens) {
		t.Errorf("%d files, %d are known", len(files), len(goldens))
	}
	for name, shows := range goldens {
		t.Run(name+" ("+shows+")", func(t *testing.T) {
			file := filepath.Join("testdata", name+".yaml")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := read(t, string(text))
			var out bytes.Buffer
			for i, raw := range w.pods {
				if i > 0 {
					out.WriteString("---\n")
				}
				pod, warnings, err := w.inject(t, raw)
				for _, warning := range warnings {
					fmt.Fprintf(&out, "# warning: %s\n", warning)
				}
				if err != nil {
					fmt.Fprintf(&out, "# refused: %v\n", err)
					continue
				}
				w.random = 1 - w.random // what is left to chance stays as it was
				again, _, err := w.inject(t, pod)
				w.random = 1 - w.random
				if err != nil {
					t.Errorf("a second time: unexpected error: %v\n%s", err, cmp.Diff(string(pod), string(again)))
				} else if !jsonpatch.Equal(pod, again) {
					t.Errorf("a second time: the pod is the same the second time: got false, want true\n%v\n%s", err,
						cmp.Diff(string(pod), string(again)))
				}
				printed, err := yaml.JSONToYAML(pod)
				if err != nil {
					t.Fatal(err)
				}
				out.Write(printed)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("out (-want +got):\n%s", diff)
			}
		})
	}
}

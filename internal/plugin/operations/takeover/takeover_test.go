package takeover

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
	"github.com/afloat-project/afloat/internal/racetest"
)

var (
	exhaustive = flag.Bool("exhaustive", false, "interrupt at every single write")
)

// listed are kind and name of each object of a state.
func listed(t *testing.T, state string) string {
	t.Helper()
	var text strings.Builder
	for _, document := range strings.Split(state, "\n---\n") {
		var object metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s %s %s\n", object.APIVersion, object.Kind, strings.TrimPrefix(object.Namespace+"/"+object.Name, "/"))
	}
	return text.String()
}

// OPS-110 (part), OPS-182, OPS-185 (part): what a takeover and the way back say and do. What was there before
// is in files of mode 0600 when the first object is written, without the data of Secrets.
func TestThereAndBack(t *testing.T) {
	w := newWorld(t, "")
	before := w.state()
	folder := filepath.Join(t.TempDir(), "backup")
	w.folder = folder
	var out bytes.Buffer
	if err := w.command(folder, &out).run(t.Context()); err != nil {
		t.Fatalf("the way there: %v: %s", err, out.String())
	}
	between := w.state()
	golden.Compare(t, "there", strings.ReplaceAll(out.String(), folder, "FOLDER"))
	golden.Compare(t, "state", listed(t, between))
	out.Reset()
	back := w.command(folder, &out)
	back.back = true
	if err := back.run(t.Context()); err != nil {
		t.Fatalf("the way back: %v: %s", err, out.String())
	}
	golden.Compare(t, "back", strings.ReplaceAll(out.String(), folder, "FOLDER"))
	if different := differences(before, w.state()); len(different) > 0 {
		t.Errorf("differences from before: got %q, want none", different)
	}
	if len(w.violated) > 0 {
		t.Errorf("violations: got %q, want none", w.violated)
	}
	for _, file := range files(t, folder) {
		info, err := os.Stat(file)
		if err != nil {
			t.Errorf("%s: unexpected error: %v\n%v", file, err, info.Mode())
		} else if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("%s: mode of the file: got %v, want 0o600\n%v\n%v", file, got, info.Mode(), err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("unexpected error: %v; %s has the data of the Secret: %v", err, file, err)
		} else if bytes.Contains(text, []byte("c2VjcmV0LXN0dWZm")) {
			t.Errorf(`the file has the data of the Secret: got true, want false; %s has the data of the Secret: %v`,
				file, err)
		}
	}
	w.folder = ""
	// There once more, with another folder: the first way back has left nothing that is in the way.
	out.Reset()
	if err := w.command(filepath.Join(t.TempDir(), "again"), &out).run(t.Context()); err != nil {
		t.Fatalf("the way there once more: %v: %s", err, out.String())
	}
	if diff := cmp.Diff(between, w.state()); diff != "" {
		t.Errorf("what is there the second time (-first +second):\n%s", diff)
	}
}

func files(t *testing.T, folder string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatalf("unexpected error: %v\n%q", err, found)
	} else if len(found) < 10 {
		t.Fatalf("number found: got %d, want at least 10\n%q\n%v", len(found), found, err)
	}
	return found
}

// differences are objects that are only in before or only in after, but for namespaces and definitions that
// are new: these stay.
func differences(before, after string) []string {
	had := map[string]bool{}
	for object := range strings.SplitSeq(before, "---\n") {
		had[object] = true
	}
	var different []string
	for object := range strings.SplitSeq(after, "---\n") {
		if !had[object] && !strings.Contains(object, "kind: CustomResourceDefinition") && !strings.Contains(object, "kind: Namespace") {
			different = append(different, "after: "+object)
		}
		delete(had, object)
	}
	for object := range had {
		different = append(different, "before: "+object)
	}
	return different
}

// OPS-184: whoever is interrupted at any write, before it or before its answer arrives, runs the command
// again and gets what an undisturbed run gets. At no time is one manager wanted while pods of the other are
// there, and no pod or workload of a user is written.
func TestATakeoverInterruptedAnywhereGoesOn(t *testing.T) {
	racetest.SkipAlone(t)
	brief := withoutSchemas(t)
	reference := newWorld(t, "")
	reference.manifests = brief
	folder := filepath.Join(t.TempDir(), "backup")
	if err := reference.command(folder, io.Discard).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	there, writes := reference.state(), reference.writes
	back := reference.command(folder, io.Discard)
	back.back = true
	if err := back.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, both := reference.state(), reference.writes
	if writes < 40 {
		t.Fatalf("writes on the way there: got %d, want 40 at least", writes)
	}
	if both < writes+30 {
		t.Fatalf("writes there and back: got %d, want %d at least", both, writes+30)
	}
	begun := map[string]bool{}
	for deadly := 1; deadly <= both; deadly++ {
		// One write of each sort, there and back; the next ones of a sort differ in the object alone.
		what := strings.Fields(reference.written[deadly-1])
		if !slices.Contains([]string{"Pod", "Deployment", "DaemonSet"}, what[1]) {
			what[1] = ""
		}
		sort := fmt.Sprint(deadly <= writes, what[:2])
		if begun[sort] && !*exhaustive {
			continue
		}
		begun[sort] = true
		for _, after := range []bool{false, true} {
			if !*exhaustive && after != (deadly%2 == 0) {
				continue
			}
			w := newWorld(t, "")
			w.deadly, w.after, w.manifests = deadly, after, brief
			folder := filepath.Join(t.TempDir(), "backup")
			// Only the first run names the folder: the Deployment remembers it.
			w.runs(t, deadly <= writes, w.command(folder, io.Discard), func() *takeover {
				c := w.command("", io.Discard)
				if !w.stoppedOnce() {
					c.backup = folder
				}
				return c
			})
			if diff := cmp.Diff(there, w.state()); diff != "" {
				t.Fatalf("died at write %d (%v): %s", deadly, after, diff)
			}
			goBack := func() *takeover {
				c := w.command(folder, io.Discard)
				c.back = true
				return c
			}
			if deadly <= writes && !*exhaustive {
				continue
			}
			w.runs(t, deadly > writes, goBack(), goBack)
			if diff := cmp.Diff(again, w.state()); diff != "" {
				t.Fatalf("back, died at write %d (%v): %s", deadly, after, diff)
			}
			if len(w.violated) > 0 {
				t.Fatalf("died at write %d (%v): %v", deadly, after, w.violated)
			}
		}
	}
}

// withoutSchemas are the manifests, with definitions that are quicker to read.
func withoutSchemas(t *testing.T) string {
	t.Helper()
	objects, err := installation.Manifests(installation.Choice{})
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, object := range objects {
		for _, version := range installation.Maps(object.Object, "spec", "versions") {
			version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}
		}
		one, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, one...), "---\n"...)
	}
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (w *world) stoppedOnce() bool {
	manager, err := w.command("", io.Discard).findManager(w.t.Context())
	return err == nil && manager.GetAnnotations()[backupAnnotation] != ""
}

// runs runs a command, and if it dies another one.
func (w *world) runs(t *testing.T, dies bool, first *takeover, next func() *takeover) {
	t.Helper()
	err := first.run(t.Context())
	if err == nil { // creating the pod with the images is tried again
		return
	}
	if !dies {
		t.Fatalf("dies: got false, want true; deadly at write %d of %v: %v", w.deadly, w.written, err)
	}
	if !errors.Is(err, errDied) {
		t.Fatalf("error: got %v, want %v; deadly at write %d of %v: %v", err, errDied, w.deadly, w.written, err)
	}
	if err := next().run(t.Context()); err != nil {
		t.Fatalf("after dying at write %d: %v", w.deadly, err)
	}
}

// OPS-181: what speaks against a takeover is named, and nothing is changed.
func TestWhatSpeaksAgainstATakeoverIsNamed(t *testing.T) {
	racetest.SkipAlone(t)
	t.Run("allowed", unservedAllowed)
	for name, test := range map[string]struct {
		more   string
		change func(*world, *takeover)
		want   string
	}{
		"objects of a kind that is not served": {more: "---\n{apiVersion: apps.kruise.io/v1beta1, kind: Voyage, metadata: {name: warm, namespace: shop}}",
			want: "does not serve what is in use: Voyage (1 object)"},
		"a stored version that is not ours": {more: `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sidecarsets.apps.kruise.io}
spec: {group: apps.kruise.io, scope: Cluster, names: {kind: SidecarSet, plural: sidecarsets}, versions: [{name: v1beta1, served: true, storage: true}]}
status: {storedVersions: [v1gamma, v1beta1]}`,
			want: "sidecarsets.apps.kruise.io may be stored in v1gamma"},
		"an image that cannot be pulled": {change: func(w *world, c *takeover) { w.pulls, c.timeout = "ErrImagePull", 20_000_000 },
			want: "nothing was stopped: waited 20ms for a pod with the images: image ours/manager:1: ErrImagePull"},
		"no answer": {change: func(_ *world, c *takeover) { c.yes = false }, want: "nothing was changed (--yes does not ask)"},
		"another namespace": {change: func(_ *world, c *takeover) { c.choice.Namespace = "elsewhere" },
			want: "there is no Deployment kruise-controller-manager in namespace elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.more)
			before := w.state()
			c := w.command(filepath.Join(t.TempDir(), "backup"), io.Discard)
			if test.change != nil {
				test.change(w, c)
			}
			err := c.run(t.Context())
			if err == nil {
				t.Errorf("error: got nil, want an error; error %v, want %s", err, test.want)
			} else if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: got %q, want it to contain %q", err.Error(), test.want)
			}
			if diff := cmp.Diff(before, w.state()); diff != "" {
				t.Errorf("what is there (-before +after):\n%s", diff)
			}
		})
	}
}

// With --allow-unserved a takeover goes on although nobody acts on some objects then. Entries of kinds that
// are not served go, as do rights that are not needed, and conversion of what is not served.
func unservedAllowed(t *testing.T) {
	w := newWorld(t, "---\n{apiVersion: apps.kruise.io/v1beta1, kind: Voyage, metadata: {name: warm, namespace: shop}}")
	var out bytes.Buffer
	c := w.command(filepath.Join(t.TempDir(), "backup"), &out)
	c.allowUnserved = true
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"nobody acts on these from now on: Voyage (1 object)",
		"gamemarkers.apps.kruise.io is not converted any more"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("out: got %q, want it to contain %q", out.String(), line)
		}
	}
	state := w.state()
	for _, gone := range []string{"mvoyage.kb.io", "kruise-extra-role", "NoSuchGate", "frobnicate"} {
		if strings.Contains(state, gone) {
			t.Errorf("%s is still there", gone)
		}
	}
	definition, err := installation.Get(t.Context(), w, installation.Definitions, "", "gamemarkers.apps.kruise.io")
	if err != nil {
		t.Errorf("unexpected error: %v\n%+v", err, definition)
	} else if got := installation.Text(definition.Object, "spec", "conversion", "strategy"); got != "None" {
		t.Errorf("strategy of the conversion: got %q, want %q\n%+v\n%v", got, "None",
			definition, err)
	}
	if !strings.Contains(state, "name: shop-games-for-kruise") {
		t.Error("a binding of a user is gone")
	}
}

// OPS-180 (part): a dry run says everything and writes nothing.
func TestADryRunWritesNothing(t *testing.T) {
	for _, how := range []string{dry, server} {
		w := newWorld(t, "")
		var out bytes.Buffer
		c := w.command("FOLDER", &out)
		c.dryRun = how
		if err := c.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "dry-run", out.String())
		if w.writes > 0 {
			t.Errorf("number of writes: got %d, want 0\n%q", w.writes, w.written)
		}
	}
}

// OPS-183: the other manager's lock is waited for: it is free when it was given back, or was not renewed for
// as long as it holds; a manager that goes on renewing it ends the takeover. Pods of the other one are gone
// before one of this project is wanted (violated), and how long nobody served is told.
func TestTheLockOfTheOtherManagerIsWaitedFor(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		w := newWorld(t, "")
		w.keeps = keeps
		var said bytes.Buffer
		c := w.command(filepath.Join(t.TempDir(), "backup"), &said)
		c.ErrOut = &said
		if err := c.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		waits := strings.Contains(said.String(),
			"kruise-controller-manager-a holds Lease kruise-system/kruise-manager, for 1s after it last renewed it")
		if waits != keeps {
			t.Errorf("waits: got %t, want %t", waits, keeps)
		}
		if !strings.Contains(said.String(), "no manager served for") {
			t.Errorf("said: got %q, want it to contain %q", said.String(), "no manager served for")
		}
		if len(w.violated) > 0 {
			t.Errorf("violations: got %q, want none", w.violated)
		}
	}
	w := newWorld(t, "")
	w.keeps, w.renews = true, true
	c := w.command(filepath.Join(t.TempDir(), "backup"), io.Discard)
	c.timeout = 1500 * time.Millisecond // more than the lock holds
	if err := c.run(t.Context()); err == nil {
		t.Error("takeover: got nil, want an error")
	} else if !strings.Contains(err.Error(), "the lock does not get free, so another manager acts") {
		t.Errorf("takeover: got %q, want it to contain %q", err.Error(),
			"the lock does not get free, so another manager acts")
	}
	for _, write := range w.written {
		if strings.HasPrefix(write, "apply") {
			t.Errorf("while the lock was held: %s", write)
		}
	}
}

package set

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	envutil "k8s.io/kubectl/pkg/cmd/set/env"

	"github.com/afloat-project/afloat/internal/fuzzing"
	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// FuzzParseQuantities: quantities that can be read are quantities, and are read again as the same after
// they were written.
func FuzzParseQuantities(f *testing.F) {
	for _, text := range []string{"cpu=100m,memory=256Mi", "cpu=0", "cpu=", "=1", "cpu=1=2", "cpu=1e3,cpu=2",
		"memory=-1", ",", "a=9999999999999999999999E"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quantities, err := parseQuantities(text)
		if err != nil {
			return
		}
		var statements []string
		for _, name := range slices.Sorted(maps.Keys(quantities)) {
			if _, err := resource.ParseQuantity(fmt.Sprint(quantities[name])); err != nil || name == "" {
				t.Errorf("%q is %v, %v", text, quantities, err)
			}
			statements = append(statements, name+"="+fmt.Sprint(quantities[name]))
		}
		if again, err := parseQuantities(strings.Join(statements, ",")); err != nil || !maps.Equal(again,
			quantities) {
			t.Errorf("%q is %v, and after it was written %v, %v", text, quantities, again, err)
		}
	})
}

// fuzzedWorkloads are objects with containers in different places.
var fuzzedWorkloads = []string{
	`{"apiVersion":"apps.kruise.io/v1beta1","kind":"CloneSet","metadata":{"name":"web"},"spec":{"template":{"spec":{"containers":[{"name":"app","image":"i:1","env":[{"name":"A","value":"b"},` +
		`{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"A","value":"c"}],"future":1.50}],"initContainers":[{"name":"init","image":"i"}]}}}}`,
	`{"apiVersion":"apps.kruise.io/v1beta1","kind":"SidecarSet","metadata":{"name":"logs"},"spec":{"containers":[{"name":"app","image":"i"},{"name":"app2"}]}}`,
	`{"apiVersion":"apps.kruise.io/v1alpha1","kind":"UnitedDeployment","metadata":{"name":"web"},"spec":{"template":{"cloneSetTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"app","env":null}]}}}}}}}`,
	`{"apiVersion":"apps.kruise.io/v1beta1","kind":"ImagePullJob","metadata":{"name":"pull"},"spec":{"image":"i"}}`,
}

// without returns an object without a field of its containers.
func without(t *testing.T, object *unstructured.Unstructured, field string) string {
	t.Helper()
	object = object.DeepCopy()
	containers, err := workload.Containers(object)
	if err != nil {
		return fuzzing.JSON(object)
	}
	for _, c := range containers {
		delete(c.Fields, field)
	}
	return fuzzing.JSON(object)
}

// FuzzSetImages: the containers that are named have the image then, and nothing else changes; a name that no
// container has is an error that tells it.
func FuzzSetImages(f *testing.F) {
	for _, text := range fuzzedWorkloads {
		f.Add(text, []byte{}, "app", "registry.example.com/app:2")
		f.Add(text, []byte("\x03\x02\x01\x00\x01"), every, "")
		f.Add(text, []byte("other containers"), "nobody", "i")
	}
	f.Fuzz(func(t *testing.T, text string, changes []byte, name, image string) {
		object := &unstructured.Unstructured{}
		if object.UnmarshalJSON([]byte(fuzzing.Edit(text, changes, "containers", "initContainers", "name", "image", "template", "spec"))) != nil {
			return
		}
		before := object.DeepCopy()
		images := map[string]string{name: image}
		err := setImages(object, images)
		if err != nil {
			if workload.Kind(object) != workload.ImagePullJob && strings.Contains(err.Error(), "unable to find") && !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
				t.Errorf("%s has no container %q: %v", fuzzing.JSON(before), name, err)
			}
			return
		}
		if workload.Kind(object) == workload.ImagePullJob {
			if got, _, _ := unstructured.NestedString(object.Object, "spec", "image"); got != image || name != every {
				t.Errorf("%s has image %q of container %q", fuzzing.JSON(object), got, name)
			}
			return
		}
		containers, err := workload.Containers(object)
		if err != nil || without(t, before, "image") != without(t, object, "image") {
			t.Errorf("%s became %s, %v", fuzzing.JSON(before), fuzzing.JSON(object), err)
		}
		was, _ := workload.Containers(before)
		for i, c := range containers {
			meant := name == every || name == c.Name()
			if meant && c.Fields["image"] != image || !meant && fuzzing.JSON(c.Fields) != fuzzing.JSON(was[i].Fields) {
				t.Errorf("image %q of container %q: container %s became %s", image, name, fuzzing.JSON(was[i].Fields), fuzzing.JSON(c.Fields))
			}
		}
	})
}

// FuzzSetEnv: each variable that is set is there once with its value, those that are removed are gone, all
// others stay in their order, nothing but variables changes, and a second time changes nothing. Without
// --overwrite, no variable gets another value.
func FuzzSetEnv(f *testing.F) {
	for _, text := range fuzzedWorkloads {
		f.Add(text, []byte{}, "A=2\nC=d=e\nB-", "", "app", true)
		f.Add(text, []byte("\x03\x02\x01\x00\x01"), "-\nD=1\nD=2", "E=5\n#F=6\n=7", "*", false)
		f.Add(text, []byte("other variables"), "A-", "", "app[", true)
	}
	f.Fuzz(func(t *testing.T, text string, changes []byte, arguments, input, pattern string, overwrite bool) {
		object := &unstructured.Unstructured{}
		if object.UnmarshalJSON([]byte(fuzzing.Edit(text, changes, "containers", "initContainers", "name", "env", "value", "valueFrom", "template", "spec"))) != nil {
			return
		}
		_, variables, ok := envutil.SplitEnvironmentFromResources(strings.Split(arguments, "\n"))
		if !ok || !utf8.ValidString(arguments+input) { // JSON has no other texts
			return
		}
		streams := genericiooptions.IOStreams{In: strings.NewReader(input)}
		o := &env{options: &options{IOStreams: streams, change: change.NewCommand("env updated", streams)}, containers: pattern, overwrite: overwrite}
		if o.parse(variables) != nil {
			return
		}
		before := object.DeepCopy()
		if o.edit(object) != nil {
			return
		}
		if without(t, before, "env") != without(t, object, "env") {
			t.Fatalf("%s became %s", fuzzing.JSON(before), fuzzing.JSON(object))
		}
		wanted := map[string]corev1.EnvVar{}
		for _, variable := range o.set {
			wanted[variable.Name] = variable
		}
		found, err := matching(object, pattern)
		if err != nil {
			t.Fatal(err)
		}
		was, err := matching(before, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range found {
			others := func(list any) (kept []string) {
				entries, _ := list.([]any)
				for _, entry := range entries {
					fields, _ := entry.(map[string]any)
					name, _ := fields["name"].(string)
					if _, set := wanted[name]; !set && !slices.Contains(o.remove, name) {
						kept = append(kept, fuzzing.JSON(entry))
					}
				}
				return kept
			}
			if !slices.Equal(others(was[i].Fields["env"]), others(c.Fields["env"])) {
				t.Errorf("%q: container %s became %s", arguments, fuzzing.JSON(was[i].Fields), fuzzing.JSON(c.Fields))
			}
			count, entries := map[string]int{}, c.Fields["env"]
			list, _ := entries.([]any)
			for _, entry := range list {
				fields, _ := entry.(map[string]any)
				name, _ := fields["name"].(string)
				var variable corev1.EnvVar
				if want, set := wanted[name]; set && (workload.Decode(fields, &variable) != nil || variable.Value != want.Value || variable.ValueFrom != nil) ||
					slices.Contains(o.remove, name) {
					t.Errorf("%q: container %s became %s", arguments, fuzzing.JSON(was[i].Fields), fuzzing.JSON(c.Fields))
				}
				count[name]++
			}
			first := map[string]bool{}
			list, _ = was[i].Fields["env"].([]any)
			for _, entry := range list {
				fields, _ := entry.(map[string]any)
				name, _ := fields["name"].(string)
				if want, set := wanted[name]; set && !overwrite && !first[name] && !slices.Contains(o.remove, name) && (fields["valueFrom"] != nil || fields["value"] != want.Value &&
					(fields["value"] != nil || want.Value != "")) {
					t.Errorf("%q: container %s got another value of %q", arguments, fuzzing.JSON(was[i].Fields), name)
				}
				first[name] = true
			}
			for name := range wanted {
				if count[name] != 1 && !slices.Contains(o.remove, name) {
					t.Errorf("%q: container %s has variable %q %d times", arguments, fuzzing.JSON(c.Fields), name, count[name])
				}
			}
		}
		once := object.DeepCopy()
		if err := o.edit(object); err != nil || fuzzing.JSON(once) != fuzzing.JSON(object) {
			t.Errorf("%q: a second time, %s became %s, %v", arguments, fuzzing.JSON(once), fuzzing.JSON(object), err)
		}
	})
}

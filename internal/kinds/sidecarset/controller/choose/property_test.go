package choose

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// drawnContainer is a container, as a document, with a field that nobody knows.
func drawnContainer(r *rapid.T, name string) map[string]any {
	c := map[string]any{"name": name, "image": name + ":1", "unknown": map[string]any{"of": name}}
	var env, mounts []any
	for _, v := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"A", "B", "IS_INJECTED"}), rapid.ID).Draw(r, "env") {
		env = append(env, map[string]any{"name": v, "value": rapid.SampledFrom([]string{"true", "false", name}).Draw(r, "value")})
	}
	for _, path := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"/a", "/b", "/c"}), rapid.ID).Draw(r, "mounts") {
		mounts = append(mounts, map[string]any{"name": rapid.SampledFrom([]string{"v", "w"}).Draw(r, "volume"), "mountPath": path,
			"subPathExpr": "$(A)/$(B)"})
	}
	if env != nil {
		c["env"] = env
	}
	if mounts != nil {
		c["volumeMounts"] = mounts
	}
	if rapid.Bool().Draw(r, "with resources") {
		c["resources"] = map[string]any{"limits": map[string]any{"cpu": "1"}, "requests": map[string]any{"cpu": "500m"}}
	}
	return c
}

func drawnSidecars(r *rapid.T, names []string) []any {
	var all []any
	for _, name := range names {
		c := drawnContainer(r, name)
		delete(c, "resources")
		c["podInjectPolicy"] = rapid.SampledFrom([]string{"BeforeAppContainer", "AfterAppContainer"}).Draw(r, "place")
		c["shareVolumePolicy"] = map[string]any{"type": rapid.SampledFrom([]string{"enabled", "disabled"}).Draw(r, "share")}
		c["transferEnv"] = []any{map[string]any{"sourceContainerName": rapid.SampledFrom([]string{"app", "s1", "s2"}).Draw(r, "source"),
			"envNames": []any{"A", "B"}}}
		if rapid.Bool().Draw(r, "hot") {
			c["upgradeStrategy"] = map[string]any{"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "idle"}
		}
		if rapid.Bool().Draw(r, "policy") {
			c["resourcesPolicy"] = map[string]any{"targetContainersMode": "sum", "targetContainersNameRegex": ".*",
				"resourcesExpr": map[string]any{"limits": map[string]any{"cpu": "cpu/2"}}}
		}
		all = append(all, c)
	}
	return all
}

// SS-105, SS-107, SS-D07, SS-D24: whatever the pod and the SidecarSets are, the patch can be applied, a
// second pass changes nothing, the pod's own containers stay as they are to the last unknown field, and each
// injected one is marked once.
func TestInjectProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var own []any
		for _, name := range append(rapid.SliceOfDistinct(rapid.SampledFrom([]string{"x", "s1", "s2-1", "s2-2"}), rapid.ID).Draw(r,
			"containers"), "app") {
			own = append(own, drawnContainer(r, name))
		}
		spec := map[string]any{"containers": own, "unknown": 1}
		if rapid.Bool().Draw(r, "with init containers") {
			spec["initContainers"] = []any{drawnContainer(r, "boot"), drawnContainer(r, "i1")}
		}
		if rapid.Bool().Draw(r, "with volumes") {
			spec["volumes"] = []any{map[string]any{"name": "v", "emptyDir": map[string]any{}, "unknown": 1}}
		}
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "p", "labels": map[string]any{"app": "x"}},
			"spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{}
		names := map[string]bool{}
		for i, sidecars := range [][]string{{"s1", "s2"}, {"t1"}} {
			set := selecting(fmt.Sprint("set-", i), matching("app", "x"), nil)
			text, err := json.Marshal(map[string]any{"containers": drawnSidecars(r, sidecars),
				"initContainers": drawnSidecars(r, []string{fmt.Sprint("i", i)}),
				"volumes": []any{map[string]any{"name": "v", "emptyDir": map[string]any{}},
					map[string]any{"name": "w", "emptyDir": map[string]any{}}}})
			if err != nil {
				t.Fatal(err)
			}
			selector := set.Spec.Selector
			if err := json.Unmarshal(text, &set.Spec); err != nil {
				t.Fatal(err)
			}
			set.Spec.Selector = selector
			w.index.Set(set)
			for _, list := range [][]appsv1beta1.SidecarContainer{set.Spec.Containers, set.Spec.InitContainers} {
				for j := range list {
					if c := &list[j]; sidecarset.IsHot(c) {
						first, second := sidecarset.HotNames(c.Name)
						names[first], names[second] = true, true
					} else {
						names[c.Name] = true
					}
				}
			}
		}
		out, _, err := w.inject(t, raw)
		if err != nil {
			return // refused as a whole, such as by a clash of names
		}
		again, _, err := w.inject(t, out)
		if err != nil || !jsonpatch.Equal(out, again) {
			r.Fatalf("a second time: %v\n%s\n%s\n%s", err, raw, out, again)
		}
		var before, after struct {
			Spec struct{ InitContainers, Containers []json.RawMessage }
		}
		for from, into := range map[*[]byte]any{&raw: &before, &out: &after} {
			if err := json.Unmarshal(*from, into); err != nil {
				t.Fatal(err)
			}
		}
		var kept, found []string
		for _, list := range [][]json.RawMessage{before.Spec.InitContainers, before.Spec.Containers} {
			for _, c := range list {
				if !names[nameIn(t, c)] {
					kept = append(kept, canonical(t, c))
				}
			}
		}
		injected := 0
		for _, list := range [][]json.RawMessage{after.Spec.InitContainers, after.Spec.Containers} {
			for _, c := range list {
				if !names[nameIn(t, c)] {
					found = append(found, canonical(t, c))
					continue
				}
				injected++
				var typed corev1.Container
				if err := json.Unmarshal(c, &typed); err != nil {
					t.Fatal(err)
				}
				marks := slices.DeleteFunc(slices.Clone(typed.Env), func(e corev1.EnvVar) bool { return e.Name != "IS_INJECTED" })
				if len(marks) != 1 || marks[0].Value != "true" {
					r.Fatalf("marks of %s: %v", typed.Name, marks)
				}
			}
		}
		if !slices.Equal(kept, found) || injected != len(names) {
			r.Fatalf("own containers\n%s\nare now\n%s\nand %d of %d are injected", kept, found, injected, len(names))
		}
	})
}

func nameIn(t *testing.T, container []byte) string {
	t.Helper()
	var named struct{ Name string }
	if err := json.Unmarshal(container, &named); err != nil {
		t.Fatal(err)
	}
	return named.Name
}

func canonical(t *testing.T, document []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

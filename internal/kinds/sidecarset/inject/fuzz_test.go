package inject

import (
	"encoding/json"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzInject: what is injected into a pod applies and makes a pod, is injected once, and has no container
// name twice that the pod did not have twice.
func FuzzInject(f *testing.F) {
	const pod = `{"metadata":{"name":"web","labels":{"app":"web"},"annotations":{"a":"b"}},"spec":{"containers":[{"name":"app","image":"i","env":[{"name":"a","value":"b"}],"volumeMounts":[{"name":"v","mountPath":"/v"}],"resources":{"limits":{"cpu":"1"}}}],"volumes":[{"name":"v","emptyDir":{}}]}}`
	const spec = `{"containers":[{"name":"side","image":"s","podInjectPolicy":"BeforeAppContainer","shareVolumePolicy":{"type":"enabled"},"transferEnv":[{"sourceContainerName":"app","envName":"a"}],"volumeMounts":[{"name":"w","mountPath":"/w"}],"future":1}],"initContainers":[{"name":"init","image":"s"}],"volumes":[{"name":"w","emptyDir":{}}],"imagePullSecrets":[{"name":"s"}],"patchPodMetadata":[{"annotations":{"c":"d"},"patchPolicy":"MergePatchJson"}]}`
	f.Add(pod, spec, []byte{}, []byte{})
	f.Add(pod, spec, []byte("\x01\x00\x02\x03\x01\x05"), []byte("\x01\x02\x01\x03"))
	f.Add(pod, `{"containers":[{"name":"hot","image":"s","upgradeStrategy":{"upgradeType":"HotUpgrade","hotUpgradeEmptyImage":"e"}}]}`, []byte{}, []byte{})
	f.Add(pod, `{"containers":[{"name":"r","image":"s","resourcesPolicy":{"targetContainersMode":"sum","resourceExpr":{"limits":{"cpu":"max(cpu*50%, 50m)"}}}}]}`, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, podText, specText string, podChanges, specChanges []byte) {
		names := []string{"name", "env", "volumeMounts", "volumes", "annotations", "containers", "initContainers",
			"restartPolicy", "resources"}
		podText, specText = fuzzing.Edit(podText, podChanges, names...), fuzzing.Edit(specText, specChanges,
			names...)
		given, sets := &corev1.Pod{}, &appsv1beta1.SidecarSetSpec{}
		if json.Unmarshal([]byte(podText), given) != nil || json.Unmarshal([]byte(specText), sets) != nil {
			return
		}
		podText = fuzzing.JSON(given) // as an API server writes it
		template, err := NewTemplate("logs", sets, "", "", "")
		if err != nil {
			return
		}
		options := Options{Now: time.Unix(1_760_000_000, 0)}
		result, err := Inject([]byte(podText), given, []*Template{template}, options)
		if err != nil || len(result.Operations) == 0 {
			return
		}
		text, err := json.Marshal(result.Operations)
		if err != nil {
			t.Fatalf("the patch of %s cannot be written: %v", podText, err)
		}
		patch, err := jsonpatch.DecodePatch(text)
		if err != nil {
			t.Fatalf("%s is no patch: %v", text, err)
		}
		made, err := patch.Apply([]byte(podText))
		if err != nil {
			t.Fatalf("%s does not apply to %s: %v", text, podText, err)
		}
		injected := &corev1.Pod{}
		if err := json.Unmarshal(made, injected); err != nil {
			t.Fatalf("%s is no pod: %v", made, err)
		}
		count := map[string]int{}
		for i := range injected.Spec.Containers {
			count[injected.Spec.Containers[i].Name]++
		}
		for i := range given.Spec.Containers {
			count[given.Spec.Containers[i].Name] -= 2 // a pod with a name twice is refused anyway
		}
		for i := range sets.Containers {
			count[sets.Containers[i].Name]-- // so is a SidecarSet
		}
		for name, n := range count {
			if n > 0 && name != "" && len(sets.Containers) == 1 {
				if spec := sets.Containers[0]; spec.UpgradeStrategy.UpgradeType != appsv1beta1.SidecarContainerHotUpgrade {
					t.Errorf("container %q is %d times too often in %s", name, n, made)
				}
			}
		}
		again, err := Inject(made, injected.DeepCopy(), []*Template{template}, options)
		if err != nil {
			return
		}
		text, err = json.Marshal(again.Operations)
		if err != nil {
			t.Fatal(err)
		}
		if patch, err = jsonpatch.DecodePatch(text); err != nil {
			t.Fatal(err)
		}
		twice := made
		if len(again.Operations) > 0 {
			if twice, err = patch.Apply(made); err != nil {
				t.Fatalf("%s does not apply to %s: %v", text, made, err)
			}
		}
		after := &corev1.Pod{}
		if err := json.Unmarshal(twice, after); err != nil {
			t.Fatal(err)
		}
		if len(after.Spec.Containers) != len(injected.Spec.Containers) ||
			len(after.Spec.InitContainers) != len(injected.Spec.InitContainers) {
			t.Errorf("injected again, %s became %s", made, twice)
		}
	})
}

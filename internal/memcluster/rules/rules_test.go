package rules

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const stored = `{"metadata":{"name":"web","uid":"a","resourceVersion":"7","generation":3,"finalizers":["keep"]},` +
	`"spec":{"nodeName":"n","containers":[{"name":"main","image":"web:1","resources":{"limits":{"cpu":"1"}}}]},` +
	`"status":{"phase":"Running"}}`

func pod(t *testing.T, document string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(document), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// A write changes what it may change, by every kind of patch, and is refused as API servers refuse it.
func TestWrites(t *testing.T) {
	const (
		strategic, merge, operations = types.StrategicMergePatchType, types.MergePatchType, types.JSONPatchType

		image  = `{"spec":{"containers":[{"name":"main","image":"web:2"}]}}`
		phase  = `{"status":{"phase":"Failed"},"metadata":{"labels":{"a":"b"}}}`
		bigger = `{"spec":{"containers":[{"name":"main","image":"web:2","resources":{"limits":{"cpu":"2"}}}]}}`
		free   = `{"spec":{"containers":[{"name":"main","resources":null}]}}`
		owned  = `{"metadata":{"generation":9,"deletionTimestamp":"2030-01-01T00:00:00Z"}}`
	)
	for name, tt := range map[string]struct {
		how                types.PatchType
		patch, subresource string
		// want is image, phase, CPU limit, label a and generation of the pod, or the reason why it is refused.
		want string
	}{
		"an image":           {strategic, image, "", "web:2 Running 1  4"},
		"the same again":     {strategic, `{"spec":{"nodeName":"n"}}`, "", "web:1 Running 1  3"},
		"a list is replaced": {merge, image, "", "web:2 Running 0  4"},
		"an operation": {operations, `[{"op":"replace","path":"/spec/containers/0/image","value":"web:2"}]`, "",
			"web:2 Running 1  4"},
		"a status with the pod":     {merge, phase, "", "web:1 Running 1 b 3"},
		"a status":                  {merge, phase, "status", "web:1 Failed 1 b 3"},
		"an image with the status":  {strategic, image, "status", "web:1 Running 1  3"},
		"a resize":                  {strategic, bigger, "resize", "web:1 Running 2  4"},
		"a resize to another class": {strategic, free, "resize", "Invalid"},
		"owned fields":              {merge, owned, "", "web:1 Running 1  3"},
		"another UID":               {merge, `{"metadata":{"uid":"b"}}`, "", "Conflict"},
		"another version":           {merge, `{"metadata":{"resourceVersion":"6"}}`, "", "Conflict"},
		"no document":               {merge, `{`, "", "BadRequest"},
		"an operation on nothing":   {operations, `[{"op":"remove","path":"/spec/none"}]`, "", "Invalid"},
		"another kind of patch":     {types.ApplyYAMLPatchType, image, "", "UnsupportedMediaType"},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := write(t, pod(t, stored), tt.how, tt.patch, tt.subresource)
			if err != nil {
				if got := string(apierrors.ReasonForError(err)); got != tt.want {
					t.Errorf("the write is refused: got %q, want %q: %v", got, tt.want, err)
				}
				return
			}

			is := after.(*corev1.Pod)
			c := is.Spec.Containers[0]
			if got := fmt.Sprintf("%s %s %s %s %d", c.Image, is.Status.Phase, c.Resources.Limits.Cpu(), is.Labels["a"],
				is.Generation); got != tt.want {
				t.Errorf("the pod: got %q, want %q", got, tt.want)
			}
			if is.DeletionTimestamp != nil || is.UID != "a" || is.ResourceVersion != "7" {
				t.Errorf("what the API server owns: got %+v", is.ObjectMeta)
			}
		})
	}
}

func write(
	t *testing.T, before *corev1.Pod, how types.PatchType, patch, subresource string,
) (client.Object, error) {
	t.Helper()
	of := schema.GroupResource{Resource: "pods"}
	document, err := Patch(of, before.Name, []byte(stored), []byte(patch), how, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	sent := pod(t, string(document))
	if err := Guard(of, before.Name, before, sent.UID, sent.ResourceVersion); err != nil {
		return nil, err
	}
	return Settle(before, sent, subresource, true, equality.Semantic.DeepEqual)
}

// A deletion begins or happens at once, and an object that nothing holds any more is gone.
func TestDelete(t *testing.T) {
	now, none := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), int64(0)
	orphan, atOnce := metav1.DeletePropagationOrphan, &metav1.DeleteOptions{GracePeriodSeconds: &none}
	held := pod(t, stored)
	free := held.DeepCopy()
	free.Finalizers = nil

	if left := Delete(free, atOnce, now); left != nil {
		t.Errorf("without grace: got %v, want nothing", left)
	}
	if left := Delete(free, &metav1.DeleteOptions{}, now); left == nil || Gone(left) ||
		left.GetDeletionTimestamp().Sub(now) != 30*time.Second {
		t.Errorf("a pod on a node: got %v, want one with 30 seconds of grace", left)
	}
	if left := Delete(&corev1.ConfigMap{}, &metav1.DeleteOptions{PropagationPolicy: &orphan}, now); left == nil ||
		len(left.GetFinalizers()) != 1 {
		t.Errorf("dependents are orphaned: got %v, want a finalizer", left)
	}

	going := Delete(held, atOnce, now)
	if going == nil || !going.GetDeletionTimestamp().Time.Equal(now) || going.GetGeneration() != 4 || Gone(going) {
		t.Fatalf("with a finalizer: got %v, want one that is being deleted", going)
	}
	if again := Delete(going, atOnce, now.Add(time.Hour)); again != going {
		t.Errorf("once more: got %v, want no change", again)
	}
	going.SetFinalizers(nil)
	if !Gone(going) {
		t.Error("without its finalizer: got an object, want none")
	}
}

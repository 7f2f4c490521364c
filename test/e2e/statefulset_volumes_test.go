//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// The volumes here are those of the local cluster's CSI driver (test/cluster/csi). VOLUMES names the folder
// with its records.

// withVolumes is a spec whose pods have a volume of 8Mi, and write its size in KiB again and again; claims
// follow their template.
func withVolumes(class, more string) string {
	return more + `
volumeClaimUpdateStrategy: {type: OnPodRollingUpdate}
volumeClaimTemplates:
- metadata: {name: data}
  spec: {storageClassName: ` + class + `, accessModes: [ReadWriteOnce], resources: {requests: {storage: 8Mi}}}
template:
  spec:
    containers:
    - name: main
      image: app:v1
      imagePullPolicy: IfNotPresent
      command: [sh, -c, "echo start >>/data/starts; trap 'exit 0' TERM; while true; do df -P /data | awk 'END {print $2}'; sleep 0.5; done"]
      volumeMounts: [{name: data, mountPath: /data}]
`
}

// resize changes the size in the claim template, and with it, if it is not empty, the image.
func (s *stateful) resize(size, image string) error {
	patch := `{"op":"replace","path":"/spec/volumeClaimTemplates/0/spec/resources/requests/storage","value":"` + size + `"}`
	if image != "" {
		patch += `,{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"` + image + `"}`
	}
	return kube.Patch(s.t.Context(), s.object.DeepCopyObject().(client.Object), client.RawPatch(types.JSONPatchType, []byte("["+patch+"]")))
}

func (s *stateful) claim(ordinal int) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: s.key.Namespace, Name: fmt.Sprintf("data-%s-%d", s.key.Name, ordinal)}
	if err := kube.Get(s.t.Context(), key, claim); err != nil {
		s.t.Fatal(err)
	}
	return claim
}

// ask asks for another size of a claim, as users do.
func (s *stateful) ask(ordinal int, size string) {
	s.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"`+size+`"}}}}`))
	if err := kube.Patch(s.t.Context(), s.claim(ordinal), patch); err != nil {
		s.t.Fatal(err)
	}
}

// sizes are what the claims ask for and have, by ordinal.
func (s *stateful) sizes(ctx context.Context) (sizes []string, err error) {
	var list corev1.PersistentVolumeClaimList
	if err := kube.List(ctx, &list, client.InNamespace(s.key.Namespace)); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		claim := &list.Items[i]
		sizes = append(sizes, claim.Spec.Resources.Requests.Storage().String()+" "+claim.Status.Capacity.Storage().String())
	}
	return sizes, nil
}

// grow lets the claims of both pods grow from 8Mi to a size, and checks that none asks for it before that of
// the higher ordinal has it. A kubelet looks at volumes when something of a pod changes, else only about once
// in a minute: a pod whose turn it is gets a label.
func (s *stateful) grow(to string) {
	s.t.Helper()
	const from = "8Mi"
	before, between, after := from+" "+from, to+" "+from, to+" "+to
	eventually(s.t, "claims of "+to, func(ctx context.Context) string {
		sizes, err := s.sizes(ctx)
		if err != nil || len(sizes) != 2 {
			return fmt.Sprint(sizes, err)
		}
		switch {
		case sizes[0] == after && sizes[1] == after:
			return ""
		case sizes[0] != before && sizes[1] != after:
			s.t.Errorf("both claims grow at a time: %v", sizes)
		case sizes[0] == between:
			s.nudge(0)
		case sizes[1] == between:
			s.nudge(1)
		}
		return fmt.Sprint(sizes)
	})
}

func (s *stateful) nudge(ordinal int) {
	s.t.Helper()
	pod, ok := s.pods()[fmt.Sprint(s.key.Name, "-", ordinal)]
	if !ok {
		return
	}
	value := "a"
	if pod.Labels["nudged"] == value {
		value = "b"
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"nudged":"`+value+`"}}}`))
	if err := kube.Patch(s.t.Context(), &pod, patch); client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
}

// feels waits until containers see file systems of that size in KiB.
func (s *stateful) feels(kib string) {
	s.t.Helper()
	for name := range s.pods() {
		eventually(s.t, "the file system of "+name, func(context.Context) string {
			said := strings.Fields(logs(s.t, s.key.Namespace, name))
			if len(said) == 0 || said[len(said)-1] != kib {
				return fmt.Sprint(said)
			}
			return ""
		})
	}
}

// failing waits until the condition FailedUpdatePod says that; an empty text waits until it is gone.
func (s *stateful) failing(text string) {
	s.t.Helper()
	eventually(s.t, "condition FailedUpdatePod with "+text, func(context.Context) string {
		conditions := s.get().Status.Conditions
		for _, c := range conditions {
			if c.Type == appsv1beta1.StatefulSetConditionFailedUpdatePod && text != "" && strings.Contains(c.Message, text) {
				return ""
			}
		}
		if text == "" && len(conditions) == 0 {
			return ""
		}
		return fmt.Sprintf("%+v", conditions)
	})
}

// tells waits for an event of the set with a reason that says that.
func (s *stateful) tells(reason, text string) {
	s.t.Helper()
	eventually(s.t, "event "+reason+" with "+text, func(ctx context.Context) string {
		var list corev1.EventList
		if err := kube.List(ctx, &list, client.InNamespace(s.key.Namespace)); err != nil {
			return err.Error()
		}
		var others []string
		for i := range list.Items {
			event := &list.Items[i]
			if event.InvolvedObject.Name != s.key.Name {
				continue
			}
			if event.Reason == reason && strings.Contains(event.Message, text) {
				return ""
			}
			others = append(others, event.Reason+": "+event.Message)
		}
		return strings.Join(others, "; ")
	})
}

// limit lets the volume of a claim refuse to grow beyond a size; an empty one lets it grow.
func (s *stateful) limit(ordinal int, size string) {
	s.t.Helper()
	path := s.volume(ordinal) + ".limit"
	var err error
	if size == "" {
		err = os.Remove(path)
	} else {
		bytes := resource.MustParse(size)
		err = os.WriteFile(path, fmt.Append(nil, bytes.Value()), 0o644)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// volume is the folder that the driver has for the volume of a claim.
func (s *stateful) volume(ordinal int) string {
	s.t.Helper()
	return filepath.Join(os.Getenv("VOLUMES"), s.claim(ordinal).Spec.VolumeName)
}

const twoInPlace = "replicas: 2" + inPlaceInOrder

// TestStatefulSetVolumesGrowOnline: a larger size in the claim template alone makes volumes grow one after
// the other, while their pods go on untouched (ASTS-272 (part), ASTS-273 (part), ASTS-277 (part),
// ASTS-279 (part)).
func TestStatefulSetVolumesGrowOnline(t *testing.T) {
	t.Parallel()
	s := settle(t, "online", withVolumes("afloat-grow", twoInPlace))
	s.feels("8192")
	if err := s.resize("16Mi", ""); err != nil {
		t.Fatal(err)
	}
	s.grow("16Mi")
	s.feels("16384")
	s.tells("SuccessfulResize", "data-online-1")
	s.tells("SuccessfulResize", "data-online-0")
	s.inPlace("app:v1", 0)
	s.happened()
	eventually(t, "the status", func(context.Context) string {
		if is := s.get().Status.VolumeClaims; len(is) != 1 || is[0].CompatibleReplicas != 2 || is[0].CompatibleReadyReplicas != 2 {
			return fmt.Sprintf("%+v", is)
		}
		return ""
	})
	if owner := s.claim(0).Annotations["apps.kruise.io/owned-by-asts"]; owner != "online" {
		t.Errorf("the claim is annotated with %q", owner)
	}
}

// TestStatefulSetVolumesGrowWithTheRollout: with a new image and a larger size, each pod gets both before the
// next one is taken, in place or anew (ASTS-272 (part), ASTS-274 (part)).
func TestStatefulSetVolumesGrowWithTheRollout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ spec, went, came string }{
		"in place": {twoInPlace, "down", "app:v2"},
		"anew":     {"replicas: 2", "gone", "created"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settle(t, "both", withVolumes("afloat-grow", test.spec))
			if err := s.resize("16Mi", "app:v2"); err != nil {
				t.Fatal(err)
			}
			s.grow("16Mi")
			s.settled()
			s.feels("16384")
			happened, lowest := s.told()
			if lowest != 1 {
				t.Errorf("%d of 2 pods were ready at the least, not 1", lowest)
			}
			happened = slices.DeleteFunc(happened, func(what string) bool { return strings.HasSuffix(what, "goes") })
			want := []string{"1 " + test.went, "1 " + test.came, "1 ready", "0 " + test.went, "0 " + test.came, "0 ready"}
			if !slices.Equal(happened, want) {
				t.Errorf("it happened: %v\nand should: %v", happened, want)
			}
			if name == "in place" {
				s.inPlace("app:v2", 1)
			}
		})
	}
}

// TestStatefulSetVolumesThatMayNotGrow: a storage class without expansion refuses the template; one that
// loses it later stops the rollout, which goes on when it allows it again (ASTS-054 (part), ASTS-275 (part)).
func TestStatefulSetVolumesThatMayNotGrow(t *testing.T) {
	t.Parallel()
	fixed := settle(t, "fixed", withVolumes("afloat-fixed", "replicas: 1"))
	err := fixed.resize("16Mi", "")
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "spec.volumeClaimTemplates[0].spec.resources.requests.storage") {
		t.Errorf("the template is refused with %v", err)
	}

	allowed, binding := true, storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}, Provisioner: "csi.afloat.dev",
		AllowVolumeExpansion: &allowed, VolumeBindingMode: &binding}
	if err := kube.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.Delete(context.Background(), class); err != nil {
			t.Error(err)
		}
	})
	allow := func(yes string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"allowVolumeExpansion":`+yes+`}`))
		if err := kube.Patch(t.Context(), class, patch); err != nil {
			t.Fatal(err)
		}
	}
	s := settle(t, "lost", withVolumes(class.Name, twoInPlace))
	s.change(`spec: {updateStrategy: {rollingUpdate: {paused: true}}}`)
	if err := s.resize("16Mi", "app:v2"); err != nil {
		t.Fatal(err)
	}
	allow("false")
	s.change(`spec: {updateStrategy: {rollingUpdate: {paused: false}}}`)
	s.tells("FailedResize", "data-lost-1")
	s.failing("data-lost-1")
	s.inPlace("app:v1", 0)
	allow("true")
	s.grow("16Mi")
	s.settled()
	s.failing("")
	s.inPlace("app:v2", 1)
}

// TestStatefulSetVolumeThatFailsToGrow: what the storage says of a failed expansion is on the set, and holds
// up the others; it goes on by itself when the storage works again (ASTS-277 (part)).
func TestStatefulSetVolumeThatFailsToGrow(t *testing.T) {
	t.Parallel()
	s := settle(t, "failing", withVolumes("afloat-grow", twoInPlace))
	s.limit(1, "8Mi")
	if err := s.resize("16Mi", "app:v2"); err != nil {
		t.Fatal(err)
	}
	s.tells("FailedResize", "may not grow beyond 8388608 bytes")
	s.failing("claim data-failing-1 does not grow to 16Mi: ")
	s.pass()
	if sizes, err := s.sizes(t.Context()); err != nil || !slices.Equal(sizes, []string{"8Mi 8Mi", "16Mi 8Mi"}) {
		t.Errorf("claims ask for, and have, %v, %v", sizes, err)
	}
	s.inPlace("app:v1", 0)
	s.happened()
	s.limit(1, "")
	s.grow("16Mi")
	s.settled()
	s.failing("")
	s.inPlace("app:v2", 1)
}

// TestStatefulSetSizeThatIsTakenBack: the way out of a size that the storage never grants is a smaller one,
// in the template and in the claim, which the set itself never shrinks (ASTS-276 (part), ASTS-277 (part)).
func TestStatefulSetSizeThatIsTakenBack(t *testing.T) {
	t.Parallel()
	s := settle(t, "back", withVolumes("afloat-grow", twoInPlace))
	s.limit(1, "12Mi")
	if err := s.resize("16Mi", ""); err != nil {
		t.Fatal(err)
	}
	s.failing("data-back-1")
	if err := s.resize("12Mi", ""); err != nil {
		t.Fatal(err)
	}
	s.pass()
	if asks := s.claim(1).Spec.Resources.Requests.Storage().String(); asks != "16Mi" {
		t.Errorf("the claim asks for %s", asks)
	}
	s.ask(1, "12Mi")
	s.grow("12Mi")
	s.failing("")
	s.feels("12288")
	s.inPlace("app:v1", 0)
	s.happened()
}

// TestStatefulSetVolumeThatGrowsBetweenPods: a driver that grows no volume in use gets its pod made anew
// after a while (ASTS-278 (part)).
func TestStatefulSetVolumeThatGrowsBetweenPods(t *testing.T) {
	t.Parallel()
	s := settle(t, "offline", withVolumes("afloat-grow-offline", "replicas: 1"+inPlaceInOrder))
	if err := s.resize("16Mi", ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new pod", func(context.Context) string {
		if pod := s.pods()["offline-0"]; pod.UID == s.seen["offline-0"].UID {
			return fmt.Sprintf("%+v", s.claim(0).Status)
		}
		return ""
	})
	s.settled()
	s.feels("16384")
	s.happened("0 goes", "0 gone", "0 created", "0 ready")
	eventually(t, "the claim", func(ctx context.Context) string {
		if sizes, err := s.sizes(ctx); err != nil || !slices.Equal(sizes, []string{"16Mi 16Mi"}) {
			return fmt.Sprint(sizes, err)
		}
		return ""
	})
}

// TestStatefulSetVolumesGo: under whenScaled and whenDeleted Delete, volumes end with the pods and the set
// that they belong to, and not before (ASTS-261 (part), ASTS-263 (part)).
func TestStatefulSetVolumesGo(t *testing.T) {
	t.Parallel()
	s := settle(t, "leaving", withVolumes("afloat-grow", twoInPlace+`
persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Delete}`))
	volumes := []string{s.volume(0), s.volume(1)}
	gone := func(volume string) {
		t.Helper()
		eventually(t, "the end of "+volume, func(context.Context) string {
			if _, err := os.Stat(volume + ".json"); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Sprint("it is there: ", err)
			}
			return ""
		})
	}
	pod := s.pods()["leaving-0"]
	if err := kube.Delete(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new pod", func(context.Context) string {
		if now := s.pods()["leaving-0"]; now.UID == "" || now.UID == pod.UID {
			return "there is none"
		}
		return ""
	})
	s.settled()
	s.change(`spec: {replicas: 1}`)
	gone(volumes[1])
	if kept := s.volume(0); kept != volumes[0] {
		t.Errorf("the volume of the pod that stays is %s, and was %s", kept, volumes[0])
	}
	s.change(`spec: {replicas: 2}`)
	s.settled()
	if anew := s.volume(1); anew == volumes[1] {
		t.Error("the volume is the one that is gone")
	} else {
		volumes[1] = anew
	}
	if err := kube.Delete(t.Context(), s.get(), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	gone(volumes[0])
	gone(volumes[1])
}

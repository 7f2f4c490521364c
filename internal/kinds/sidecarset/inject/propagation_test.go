package inject

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// A pod of a storage driver was refused because of its sidecar: a mount that propagates back to the node is
// for privileged containers alone (SS-116 (part)).
func TestASharedMountDoesNotNeedPrivileges(t *testing.T) {
	yes, back := true, corev1.MountPropagationBidirectional
	for name, test := range map[string]struct {
		security *corev1.SecurityContext
		want     string
	}{"plain": {nil, "HostToContainer"}, "privileged": {&corev1.SecurityContext{Privileged: &yes}, "Bidirectional"}} {
		sidecar := appsv1beta1.SidecarContainer{}
		sidecar.Name, sidecar.Image, sidecar.SecurityContext = "agent", "agent:1", test.security
		sidecar.ShareVolumePolicy.Type = appsv1beta1.ShareVolumePolicyEnabled
		spec := &appsv1beta1.SidecarSetSpec{}
		spec.Containers = []appsv1beta1.SidecarContainer{sidecar}
		template, err := NewTemplate("logs", spec, "hash", "without", "")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "driver",
			SecurityContext: &corev1.SecurityContext{Privileged: &yes},
			VolumeMounts:    []corev1.VolumeMount{{Name: "shared", MountPath: "/shared", MountPropagation: &back, ReadOnly: true}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{}
		if err := json.Unmarshal(raw, pod); err != nil {
			t.Fatal(err)
		}
		result, err := Inject(raw, pod, []*Template{template}, Options{Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(result.Operations)
		if err != nil {
			t.Errorf("%s: unexpected error: %v\n%s", name, err, text)
		} else if !strings.Contains(string(text), `"mountPropagation":"`+test.want+`"`) {
			t.Errorf("%s: text: got %q, want it to contain %q\n%v", name, string(text), `"mountPropagation":"`+test.want+`"`, err)
		} else if !strings.Contains(string(text), `"readOnly":true`) {
			t.Errorf("%s: text: got %q, want it to contain %q\n%v", name, string(text), `"readOnly":true`, err)
		}
	}
}

package inject

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/cputime"
)

// TestAPodWithManyVariablesAndMounts: the effort for a pod does not grow with the product of its variables
// and of their uses: who may create pods could keep the webhook from answering for all others (SS-117,
// SS-107).
func TestAPodWithManyVariablesAndMounts(t *testing.T) {
	sidecar := appsv1beta1.SidecarContainer{}
	sidecar.Name, sidecar.Image = "proxy", "proxy:1"
	sidecar.ShareVolumePolicy.Type = appsv1beta1.ShareVolumePolicyEnabled
	sidecar.TransferEnv = []appsv1beta1.TransferEnvVar{{SourceContainerName: "proxy", EnvNames: []string{"V0"}}}
	spec := &appsv1beta1.SidecarSetSpec{}
	spec.Containers = []appsv1beta1.SidecarContainer{sidecar}
	template, err := NewTemplate("mesh", spec, "hash", "without", "")
	if err != nil {
		t.Fatal(err)
	}
	const count = 30_000 // some times what the API server takes, so that the difference is clear
	app, before := corev1.Container{Name: "app"},
		corev1.Container{Name: "proxy", Env: []corev1.EnvVar{{Name: "IS_INJECTED", Value: "true"}}}
	var uses strings.Builder
	for i := range count {
		name := fmt.Sprintf("V%d", i)
		app.Env = append(app.Env, corev1.EnvVar{Name: name})
		before.Env = append(before.Env, corev1.EnvVar{Name: name})
		fmt.Fprintf(&uses, "$(%s)", name)
	}
	app.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPathExpr: uses.String()}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{app, before}}}
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	spent := cputime.Start(t)
	result, err := Inject(raw, pod, []*Template{template}, Options{Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if took := spent(); took > 5*time.Second { // some 0.2 s; by the square a minute
		t.Errorf("injection took %s, want 5s at most", took)
	}
	text, err := json.Marshal(result.Operations)
	if err != nil {
		t.Errorf("unexpected error: %v\n%.300s", err, text)
	} else if !strings.Contains(string(text), fmt.Sprintf(`"V%d"`, count-1)) {
		t.Errorf("text: got %q, want it to contain %q\n%v", string(text), fmt.Sprintf(`"V%d"`, count-1), err)
	}
}

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/platform/slim"
)

// WS-085, WS-205: the ReplicaSet with the Deployment's template is the latest, whatever its age, and the
// oldest of several.
func TestLatestOfDeployment(t *testing.T) {
	template := func(image, hash string) corev1.PodTemplateSpec {
		p := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: image}}}}
		if hash != "" {
			p.Labels[pub.PodTemplateHash] = hash
		}
		return p
	}
	set := func(image, hash string, age int) appsv1.ReplicaSet {
		s := appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{pub.PodTemplateHash: hash},
			CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0))},
			Spec: appsv1.ReplicaSetSpec{Template: template(image, hash)}}
		if _, err := slim.Workload(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, tt := range map[string]struct {
		image string
		sets  []appsv1.ReplicaSet
		want  string
		bad   bool
	}{
		"the newest":            {"i:2", []appsv1.ReplicaSet{set("i:1", "one", 20), set("i:2", "two", 10)}, "two", false},
		"rolled back":           {"i:1", []appsv1.ReplicaSet{set("i:1", "one", 20), set("i:2", "two", 10)}, "one", false},
		"two of the same":       {"i:1", []appsv1.ReplicaSet{set("i:1", "young", 1), set("i:1", "old", 10)}, "old", false},
		"none yet":              {"i:3", []appsv1.ReplicaSet{set("i:1", "one", 20)}, "", true},
		"no ReplicaSets at all": {"i:3", nil, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template(tt.image, "")}}
			if _, err := slim.Workload(deployment); err != nil {
				t.Fatal(err)
			}
			got, err := latestOf(deployment, tt.sets)
			if got != tt.want {
				t.Errorf("got %q, want %q\n%v", got, tt.want, err)
			}
			if (err != nil) != tt.bad {
				t.Errorf("an error: got %t, want %t\n%v", err != nil, tt.bad, err)
			}
		})
	}
}

package inplace

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestHashesHaveTheirKnownValues checks the hashes against known values (IPU-125, IPU-126).
func TestHashesHaveTheirKnownValues(t *testing.T) {
	if got := PlainHash("main", "nginx:alpine"); got != "3255874907" {
		t.Errorf("plain hash: got %s, want 3255874907", got)
	}
	pod := webPod(annotated("a", "foo"))
	if got := EnvHash(pod, &corev1.Container{}); got != "86995377" {
		t.Errorf("hash of no environment: got %s, want 86995377", got)
	}
	container := &corev1.Container{Env: []corev1.EnvVar{{Name: "LITERAL", Value: "x"}, {Name: "e2", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['a']"}}}}}
	if got := EnvHash(pod, container); got != "2053173458" {
		t.Errorf("hash of one entry: got %s, want 2053173458", got)
	}
}

// ND-101 (part), ND-103 (part): of two entries with the same name only the later counts; all other entries
// count.
func TestAnOverriddenEntryIsNotHashed(t *testing.T) {
	entry := func(name, key string) corev1.EnvVar {
		return corev1.EnvVar{Name: name,
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + key + "']"}}}
	}
	hash := func(a, b string, env ...corev1.EnvVar) string {
		return ActualEnvHash(&corev1.Container{Env: env}, map[string]string{"A": a, "B": b})
	}
	both := []corev1.EnvVar{entry("A", "a"), entry("B", "b")}
	if hash("1", "1", both...) == hash("2", "1", both...) {
		t.Error("the first of two entries does not count in the hash")
	}
	if hash("1", "1", both...) == hash("1", "2", both...) {
		t.Error("the second of two entries does not count in the hash")
	}
	if hash("1", "1", append(both, corev1.EnvVar{Name: "A", Value: "x"})...) != hash("", "1", both[1]) {
		t.Error("an entry that a later one overrides counts")
	}
	if hash("1", "1", append(both, entry("A", "c"))...) != hash("1", "1", both...) {
		t.Error("an entry that is given twice counts twice, or never")
	}
}

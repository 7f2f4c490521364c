package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IMG-113 (part): the name of a copy has room for the longest name of a secret that keeps it whole.
func TestTheLongestNameOfACopy(t *testing.T) {
	for length, kept := range map[int]int{236: 236, 237: 236, 253: 236} {
		got := copyName(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("s", length)}}, 0)
		if strings.Count(got[:min(len(got), kept)], "s") != kept || len(got) != kept+17 {
			t.Errorf("of %d characters: %s", length, got)
		}
	}
}

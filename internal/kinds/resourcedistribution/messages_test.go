package resourcedistribution_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	build "github.com/afloat-project/afloat/internal/kinds/resourcedistribution/resourcedistributiontest"
)

// What is told of a resource that cannot be read has nothing of its content: statuses and events are read by
// more people than Secrets.
func TestFaultsTellNoContent(t *testing.T) {
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"pin":867530912}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"pin":867530912}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":867530912}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"pin":"867530912!"}}`,
	} {
		_, err := resourcedistribution.Read(build.Distribution("a", build.Resource(text)))
		if err == nil {
			t.Errorf("%s: error: got nil, want an error", text)
		} else if strings.Contains(err.Error(), "867530912") {
			t.Errorf("%s: error: got %q, want it not to contain %q", text, err.Error(), "867530912")
		}
	}
}

// What users of a namespace may write as finalizers makes neither what is kept nor what is told large.
func TestManyFinalizersMakeNothingLarge(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "login", Finalizers: make([]string, 10000),
		OwnerReferences: []metav1.OwnerReference{{Kind: resourcedistribution.Name, UID: "uid-of-a", Controller: new(true)}}}}
	for i := range secret.Finalizers {
		secret.Finalizers[i] = fmt.Sprintf("users.example/%s-%d", strings.Repeat("f", 40), i)
	}
	size := 0
	for _, finalizer := range resourcedistribution.CopyOf(secret).Finalizers {
		size += len(finalizer)
	}
	if size > 1<<10 {
		t.Errorf("%d bytes are kept of finalizers", size)
	}
}

package imagepull

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/racetest"
)

// IMG-123: as TestPullSecretsTakeLittleMemory, with secrets whose credentials are tiny, but which have thousands of other
// keys with long names and empty values. The API server counts only values against the size of a secret, and stores
// objects of 1.5 MB. The daemon, which has 128 MiB, must not keep them: it uses one of the keys.
func TestKeysOfPullSecretsTakeLittleMemory(t *testing.T) {
	racetest.SkipAlone(t) // it weighs memory
	const jobs = 2
	var objects []client.Object
	var asked [][]types.NamespacedName
	for job := range jobs {
		var names []types.NamespacedName
		for i := range pub.MaxPullSecrets {
			secret := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson,
				ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-daemon-config", Name: fmt.Sprintf("s%d-%d", job, i),
					Annotations: map[string]string{pub.SecretSource: "mallory/s", pub.SecretReferences: fmt.Sprintf("mallory/j%d", job)}},
				Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"r.io":{"username":"u"}}}`)}}
			for k := range 4500 { // as many as an object may have, whose names have at most 253 characters
				secret.Data[fmt.Sprintf("%d-%d-%d-%s", job, i, k, strings.Repeat("k", 230))] = nil
			}
			if n := secret.Size(); n > 1500<<10 {
				t.Fatalf("no API server stores a secret of %d bytes", n)
			}
			objects, names = append(objects, secret), append(names, client.ObjectKeyFromObject(secret))
		}
		asked = append(asked, names)
	}
	s := newSecrets(fake.NewClientBuilder().WithObjects(objects...).Build(), clock.RealClock{})
	used := func() int {
		goruntime.GC()
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := used()
	for job, names := range asked {
		if _, err := s.credentials(t.Context(), names, []string{fmt.Sprintf("mallory/j%d", job)}, "r.io/app"); err != nil {
			t.Fatal(err)
		}
	}
	if kept := used() - before; kept > 16<<20 {
		t.Errorf("%d secrets of %d jobs keep %d MiB of the daemon, whose limit is 128 MiB", len(objects), jobs, kept>>20)
	}
	goruntime.KeepAlive(s)
	goruntime.KeepAlive(objects)
}

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
)

// A tenant's jobs name as many pull secrets as a job may, as large as the API server stores them. The daemon of each node
// remembers credentials for minutes: it has 128 MiB, and would be killed on all nodes, again and again, with the pulls,
// probes and restarts of everybody.
func TestPullSecretsTakeLittleMemory(t *testing.T) {
	one := func(n int) string { return strings.Repeat("x", 1000<<10) }
	many := func(n int) string {
		var text strings.Builder
		text.WriteString(`"`)
		for i := 0; text.Len() < 900<<10; i++ {
			fmt.Fprintf(&text, `":{"username":"u"},"r%d-%d.io`, n, i)
		}
		return strings.TrimPrefix(text.String(), `"":{"username":"u"},`) + `":{"username":"u"}`
	}
	for name, test := range map[string]struct {
		jobs    int
		content func(n int) string
	}{
		"a long password in each": {4, func(n int) string { return fmt.Sprintf(`"r.io":{"username":"u","password":"%s"}`, one(n)) }},
		"many entries in each":    {1, many},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			var asked [][]types.NamespacedName
			for job := range test.jobs {
				var names []types.NamespacedName
				for i := range pub.MaxPullSecrets {
					secret := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson,
						ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-daemon-config", Name: fmt.Sprintf("s%d-%d", job, i),
							Annotations: map[string]string{pub.SecretSource: "mallory/s", pub.SecretReferences: fmt.Sprintf("mallory/j%d", job)}},
						Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{` + test.content(i) + `}}`)}}
					if n := len(secret.Data[corev1.DockerConfigJsonKey]); n > corev1.MaxSecretSize {
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
				if _, err := s.credentials(t.Context(), names, []string{fmt.Sprintf("mallory/j%d", job)}); err != nil {
					t.Fatal(err)
				}
			}
			if kept := used() - before; kept > 32<<20 {
				t.Errorf("the secrets of %d jobs keep %d MiB of the daemon, whose limit is 128 MiB", test.jobs, kept>>20)
			}
			goruntime.KeepAlive(s)
			goruntime.KeepAlive(objects)
		})
	}
}

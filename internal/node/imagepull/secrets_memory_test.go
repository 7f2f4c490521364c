package imagepull

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/racetest"
)

// stored is an API server that has these secrets. The fake client would encode each of them several times.
type stored map[types.NamespacedName]*corev1.Secret

func (s stored) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s[key].DeepCopyInto(object.(*corev1.Secret))
	return nil
}

func (stored) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// A tenant's jobs name as many pull secrets as a job may, as large as the API server stores them, or as nodes read them. The
// daemon of each node remembers credentials for minutes, and those of a pull as long as it lasts: it has 128 MiB, and would be
// killed on all nodes, again and again, with the pulls, probes and restarts of everybody. What somebody else has, of usual
// size, stays known.
func TestPullSecretsTakeLittleMemory(t *testing.T) {
	racetest.SkipAlone(t) // it weighs memory
	password := func(_, bytes int) string {
		return fmt.Sprintf(`"r.io":{"username":"u","password":%q}`, strings.Repeat("x", bytes-100))
	}
	// entries makes many entries, for registries like that one, whose name a number follows.
	entries := func(registry string) func(n, bytes int) string {
		return func(n, bytes int) string {
			var text strings.Builder
			fmt.Fprintf(&text, `"r.io/other":{"username":"u"}`)
			for i := 0; text.Len() < bytes-100; i++ {
				fmt.Fprintf(&text, `,"%s%d-%d":{"username":"u%d-%d"}`, registry, n, i, n, i)
			}
			return text.String()
		}
	}
	for name, test := range map[string]struct {
		jobs, bytes int
		content     func(n, bytes int) string
	}{
		"a long password in each":              {2, 1000 << 10, password},
		"a password as long as nodes read":     {2, pub.MaxPullSecretBytes, password},
		"many entries in each":                 {1, 900 << 10, entries("r")},
		"as many as nodes read":                {1, pub.MaxPullSecretBytes, entries("r")},
		"many entries that are for that image": {1, pub.MaxPullSecretBytes, entries("r.io?")},
	} {
		t.Run(name, func(t *testing.T) {
			usual := secret("usual", "ann", "r.io")
			objects := stored{client.ObjectKeyFromObject(usual): usual}
			var asked [][]types.NamespacedName
			for job := range test.jobs {
				var names []types.NamespacedName
				for i := range pub.MaxPullSecrets / 2 { // enough, and soon read
					secret := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson,
						ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-daemon-config", Name: fmt.Sprintf("s%d-%d", job, i),
							Annotations: map[string]string{pub.SecretSource: "mallory/s", pub.SecretReferences: fmt.Sprintf("mallory/j%d", job)}},
						Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{` + test.content(i, test.bytes) + `}}`)}}
					if n := len(secret.Data[corev1.DockerConfigJsonKey]); n > corev1.MaxSecretSize {
						t.Fatalf("no API server stores a secret of %d bytes", n)
					}
					key := client.ObjectKeyFromObject(secret)
					objects[key], names = secret, append(names, key)
				}
				asked = append(asked, names)
			}
			s := newSecrets(objects, clock.RealClock{})
			used := func() int {
				goruntime.GC()
				goruntime.GC()
				var m goruntime.MemStats
				goruntime.ReadMemStats(&m)
				return int(m.HeapAlloc)
			}
			before := used()
			credentials := func(names []types.NamespacedName, jobs ...string) []runtime.Auth {
				t.Helper()
				found, err := s.credentials(t.Context(), names, jobs, "r.io/app")
				if err != nil {
					t.Fatal(err)
				}
				return found
			}
			mine := client.ObjectKeyFromObject(usual)
			if n := len(credentials([]types.NamespacedName{mine})); n != 1 {
				t.Errorf("credentials in the secret of usual size: got %d, want 1", n)
			}
			var pulls [][]runtime.Auth
			for job, names := range asked {
				pulls = append(pulls, credentials(names, fmt.Sprintf("mallory/j%d", job)))
			}
			if kept := used() - before; kept > 12<<20 {
				t.Errorf("the secrets of %d jobs keep %d MiB of the daemon, whose limit is 128 MiB", test.jobs, kept>>20)
			}
			if s.known[mine].secret == nil {
				t.Error("the secret of usual size is forgotten")
			}
			goruntime.KeepAlive(s)
			goruntime.KeepAlive(pulls)
			goruntime.KeepAlive(objects)
		})
	}
}

package imagepull

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// IMG-088, IMG-123, IMG-137: jobs of two tenants ask for the same tag, so that they share its pull and the list of secrets. Those of the one
// who came first, which are no good, have as many bytes of credentials as are tried for a pull. The credentials of the other one
// are tried nevertheless, as they were before: his job would fail on each node otherwise, and whoever knows which private image somebody is
// about to pull could keep him from it.
func TestLargeCredentialsOfOneTenantKeepNoneOfAnotherFromBeingTried(t *testing.T) {
	made := func(name, source, job, user, password string) *corev1.Secret {
		return &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson,
			ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-daemon-config", Name: name,
				Annotations: map[string]string{pub.SecretSource: source, pub.SecretReferences: job}},
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(fmt.Sprintf(`{"auths":{"r.io":{"username":%q,"password":%q}}}`, user, password))}}
	}
	var objects []client.Object
	var names []types.NamespacedName
	for n := range 3 {
		objects = append(objects, made(fmt.Sprintf("s%d", n), fmt.Sprintf("mallory/s%d", n), "mallory/job", fmt.Sprintf("m%d", n), strings.Repeat("x", 500<<10)))
	}
	objects = append(objects, made("login", "shop/login", "shop/warm", "ann", "secret"))
	for _, object := range objects {
		names = append(names, client.ObjectKeyFromObject(object))
	}
	s := newSecrets(fake.NewClientBuilder().WithObjects(objects...).Build(), clock.RealClock{})
	auths, err := s.credentials(t.Context(), names, []string{"mallory/job", "shop/warm"}, "r.io/shop/app")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(auths, func(a runtime.Auth) bool { return a.Username == "ann" }) {
		t.Errorf("%d credentials are tried, and that of the other tenant is not among them", len(auths))
	}
}

package imagepull

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pulljobs "github.com/afloat-project/afloat/internal/kinds/imagepull"
)

// IMG-122 (part), IMG-111 (part): as TestManySecretsOfOneTenantKeepNoneOfAnotherFromPulling, for what the administrator of the cluster pulls: with
// a job in the namespace from which daemons read secrets, or by a tag in the NodeImage. The secrets of the tenant, none of
// which such a tag may use, are all in that namespace.
func TestManySecretsOfATenantDoNotKeepTheAdministratorFromPulling(t *testing.T) {
	for name, owners := range map[string][]string{"a job in the namespace of the copies": {"cfg/warm"}, "a tag without a job": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var secrets []client.Object
				for n := range 3600 {
					namespace := fmt.Sprintf("mallory-%d", n/1800)
					secrets = append(secrets, copied(fmt.Sprintf("m%d%s", n, pulljobs.CopyMark(namespace)), fmt.Sprintf("%s/s%d", namespace, n),
						fmt.Sprintf("%s/j%d", namespace, n/32), `"r.io":{"username":"m","password":"x"}`))
				}
				secrets = append(secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cfg", Name: "login"}, Type: corev1.SecretTypeDockerConfigJson,
					Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"docker.io":{"username":"ann","password":"secret"}}}`)}})
				result, took := pulls(t, owners, secrets)
				if !strings.Contains(result, "Succeeded") {
					t.Errorf("the pull of the administrator, after %s: %s", took, result)
				}
			})
		})
	}
}

// IMG-122 (part), IMG-113 (part): as TestManySecretsOfOneTenantKeepNoneOfAnotherFromPulling, while the tenant has chosen the name of a
// namespace of which the copies had the same mark as those of the other tenant, when it had eight characters: it takes minutes
// to find one.
func TestManySecretsUnderTheMarkOfAnotherTenantDoNotKeepItFromPulling(t *testing.T) {
	const mallory, shop = "mallory-55679", "shop-11788"
	synctest.Test(t, func(t *testing.T) {
		var secrets []client.Object
		for n := range 3600 {
			secrets = append(secrets, copied(fmt.Sprintf("m%d%s", n, pulljobs.CopyMark(mallory)), fmt.Sprintf("%s/s%d", mallory, n),
				fmt.Sprintf("%s/j%d", mallory, n/32), `"r.io":{"username":"m","password":"x"}`))
		}
		secrets = append(secrets, copied("s"+pulljobs.CopyMark(shop), shop+"/login", shop+"/warm", `"docker.io":{"username":"ann","password":"secret"}`))
		result, took := pulls(t, []string{shop + "/warm"}, secrets)
		if !strings.Contains(result, "Succeeded") {
			t.Errorf("the pull of the other tenant, after %s: %s", took, result)
		}
	})
}

// IMG-122 (part), IMG-123 (part), IMG-137 (part): as TestManySecretsOfOneTenantKeepNoneOfAnotherFromPulling, while the one with the many secrets has jobs
// for the same tag, too, without any secret. Namespaces take turns for reads as for credentials, of which
// the first is tried before all secrets are read.
func TestManySecretsOfATenantWithAJobForTheSameTagDoNotKeepAnotherFromPulling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var secrets []client.Object
		for n := range 3600 {
			namespace := fmt.Sprintf("mallory-%d", n/1800)
			secrets = append(secrets, copied(fmt.Sprintf("m%d%s", n, pulljobs.CopyMark(namespace)), fmt.Sprintf("%s/s%d", namespace, n),
				fmt.Sprintf("%s/j%d", namespace, n/32), `"r.io":{"username":"m","password":"x"}`))
		}
		secrets = append(secrets, copied("s"+pulljobs.CopyMark("shop"), "shop/login", "shop/warm", `"docker.io":{"username":"ann","password":"secret"}`))
		result, took := pulls(t, []string{"shop/warm", "mallory-0/same", "mallory-1/same"}, secrets)
		if !strings.Contains(result, "Succeeded") {
			t.Errorf("the pull of the other tenant, after %s: %s", took, result)
		}
	})
}

package imagepull

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/client"

	pulljobs "github.com/afloat-project/afloat/internal/kinds/imagepull"
)

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

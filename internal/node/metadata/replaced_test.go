package metadata

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// ND-116 (part): the image of a running container is known by its hash if the runtime keeps one, otherwise by the name of the image.
func TestWhichContainersKubeletReplaces(t *testing.T) {
	app := &corev1.Container{Name: "app", Image: "app:1"}
	same, other := number(inplace.PlainHash("app", "app:1")), number(inplace.PlainHash("app", "app:2"))
	for name, tt := range map[string]struct {
		current runtime.Container
		want    bool
	}{
		"the same hash":                       {runtime.Container{PlainHash: same}, false},
		"another hash":                        {runtime.Container{PlainHash: other}, true},
		"the same hash under another name":    {runtime.Container{PlainHash: same, Image: "mirror/app:x"}, false},
		"another hash under the same name":    {runtime.Container{PlainHash: other, Image: "app:1"}, true},
		"no hash, the same image":             {runtime.Container{Image: "docker.io/library/app:1"}, false},
		"no hash, another image":              {runtime.Container{Image: "app:2"}, true},
		"neither hash nor image are reported": {runtime.Container{}, false},
	} {
		if got := replaced(app, &tt.current); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

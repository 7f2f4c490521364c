package imageref

import "testing"

func TestImageNamesAreSplitAndCompleted(t *testing.T) {
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	for image, want := range map[string][3]string{ // IMG-011, IMG-012, IMG-013, IMG-210
		"nginx":                            {"nginx", "latest", "nginx:latest"},
		"docker.io/library/nginx:1.2":      {"nginx", "1.2", "nginx:1.2"},
		"docker.io/acme/app":               {"acme/app", "latest", "acme/app:latest"},
		"registry.example.com:5000/a/b:v1": {"registry.example.com:5000/a/b", "v1", "registry.example.com:5000/a/b:v1"},
		"nginx@" + digest:                  {"nginx", digest, "nginx@" + digest},
		"nginx:1.2@" + digest:              {"nginx", digest, "nginx@" + digest},
	} {
		name, tag, err := Parse(image)
		if err != nil {
			t.Errorf("%s: %v", image, err)
		}
		if got := [3]string{name, tag, Full(name, tag)}; got != want {
			t.Errorf("name, tag and full name of %s: got %q, want %q", image, got, want)
		}
	}
	for _, image := range []string{"", "Nginx", "a b", "nginx:", "@sha256:1"} {
		if name, tag, err := Parse(image); err == nil {
			t.Errorf("%q is %s and %s", image, name, tag)
		}
	}
}

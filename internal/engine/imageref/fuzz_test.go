package imageref

import "testing"

// FuzzParse: the name and the tag of an image make a reference that has the same name and tag.
func FuzzParse(f *testing.F) {
	for _, image := range []string{"nginx", "nginx:1.27", "registry.example.com:5000/a/b:c",
		"docker.io/library/nginx", "a@sha256:" +
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"a:1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"[::1]:5000/a", "A/b", "index.docker.io/a", ""} {
		f.Add(image)
	}
	f.Fuzz(func(t *testing.T, image string) {
		name, tag, err := Parse(image)
		if err != nil {
			return
		}
		if name == "" || tag == "" {
			t.Errorf("%q has the name %q and the tag %q", image, name, tag)
		}
		if name2, tag2, err := Parse(Full(name, tag)); err != nil || name2 != name || tag2 != tag {
			t.Errorf("%q is %q, %q; and %q is %q, %q, %v", image, name, tag, Full(name, tag), name2, tag2, err)
		}
	})
}

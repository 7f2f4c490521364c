package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// byTag are the actions in workflows with rights that nobody has pinned by a commit yet, and the job in which
// each may stand: see docs/decisions/0039. Take one off when it is pinned, and add none.
var byTag = map[string]string{"actions/upload-artifact@v4": "build"}

type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		Permissions map[string]string `json:"permissions"`
		Needs       any               `json:"needs"`
		Timeout     int               `json:"timeout-minutes"`
		Steps       []struct {
			Uses string `json:"uses"`
			Run  string `json:"run"`
		} `json:"steps"`
	} `json:"jobs"`
}

// The workflows have no more rights than they need, name versions of all actions, and run what there is in
// the project.
func TestWorkflows(t *testing.T) {
	makefile := string(read(t, "../../Makefile"))
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %q", err, files)
	}
	versioned := regexp.MustCompile(`^[a-z-]+/[a-z-]+@(v\d+|[0-9a-f]{40})$`)
	target := regexp.MustCompile(`(?m)\bmake ([a-z-]+)`)
	script := regexp.MustCompile(`(?m)^\s*(\.?[a-z]+/[a-z./-]+)`)
	targets := 0
	for _, file := range files {
		text := string(read(t, file))
		w := workflow{}
		if err := yaml.Unmarshal([]byte(text), &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if w.Permissions == nil {
			t.Errorf("%s leaves the rights to the settings of the repository", file)
		}
		for right, value := range w.Permissions {
			if value != "read" {
				t.Errorf("%s gives every job the right %s: %s", file, right, value)
			}
		}
		if strings.Contains(text, "pull_request_target") {
			t.Errorf("%s runs changes of strangers with rights", file)
		}
		if strings.Contains(text, "write") != strings.HasSuffix(file, "release.yml") {
			t.Errorf("%s writes, or the release does not", file)
		}
		for name, job := range w.Jobs {
			if job.Timeout == 0 || len(job.Steps) == 0 {
				t.Errorf("%s: job %s has no limit of time, or no steps", file, name)
			}
			for _, step := range job.Steps {
				if (step.Uses == "") == (step.Run == "") || step.Uses != "" && !versioned.MatchString(step.Uses) {
					t.Errorf("%s: step %+v", file, step)
				}
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s: what others named is pasted into a shell: %s", file, step.Run)
				}
				for _, m := range target.FindAllStringSubmatch(step.Run, -1) {
					targets++
					if !strings.Contains(makefile, "\n"+m[1]+":") {
						t.Errorf("%s: there is no target %s", file, m[1])
					}
				}
				for _, m := range script.FindAllStringSubmatch(step.Run, -1) {
					if info, err := os.Stat(filepath.Join("../..", m[1])); err != nil || info.Mode()&0o111 == 0 {
						t.Errorf("%s: %s does not run: %v", file, m[1], err)
					}
				}
			}
		}
	}
	if targets < 2 {
		t.Errorf("%d targets of make", targets)
	}
}

// Who signs builds nothing, who builds has no rights, and no action that others could change gets hold of a
// right: in a workflow that writes anything actions are pinned by their commits, but for those that are
// listed.
func TestWhatSignsBuildsNothing(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	pinned, builds := regexp.MustCompile(`@[0-9a-f]{40}$`), regexp.MustCompile(`(?m)\b(make|go run|go build|gh repo clone|git clone)\b`)
	listed, signers := map[string]bool{}, 0
	for _, file := range files {
		w := workflow{}
		if err := yaml.Unmarshal(read(t, file), &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		writes := func(name string) bool {
			for _, value := range w.Jobs[name].Permissions {
				if value != "read" {
					return true
				}
			}
			return false
		}
		rights := false
		for name := range w.Jobs {
			rights = rights || writes(name)
		}
		if !rights {
			continue
		}
		for name, job := range w.Jobs {
			signs, made, checks := job.Permissions["id-token"] != "", false, false
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					if byTag[step.Uses] != name || writes(name) {
						t.Errorf("%s: job %s uses %s: pin it by its commit", file, name, step.Uses)
					}
					listed[step.Uses] = true
				}
				made = made || strings.Contains(step.Run, "make release\n")
				checks = checks || strings.Contains(step.Run, `sha256sum --check --strict <<<"$SUMS"`) && strings.Contains(step.Run, "sha256sum --check --strict --quiet SHA256SUMS")
				if found := builds.FindString(step.Run); signs && found != "" {
					t.Errorf("%s: job %s can ask for the identity, and runs %s", file, name, found)
				}
			}
			if made && writes(name) {
				t.Errorf("%s: job %s makes the release, and has rights", file, name)
			}
			if !made && !checks {
				t.Errorf("%s: job %s does not check what it was handed", file, name)
			}
			if signs {
				signers++
			}
		}
	}
	if signers != 1 {
		t.Errorf("%d jobs sign", signers)
	}
	for action := range byTag {
		if !listed[action] {
			t.Errorf("%s is listed, and used by nobody", action)
		}
	}
}

// Newer versions are proposed for every module that is not a version of Kubernetes to test with, for what
// npm installs and for the workflows.
func TestEveryModuleIsKeptUpToDate(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directory   string   `json:"directory"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	if err := yaml.Unmarshal(read(t, "../../.github/dependabot.yml"), &config); err != nil {
		t.Fatal(err)
	}
	kept := map[string]bool{}
	for _, update := range config.Updates {
		for _, directory := range append(update.Directories, update.Directory) {
			kept[update.Ecosystem+" "+directory] = true
		}
	}
	ecosystems := map[string]string{"go.mod": "gomod", "package.json": "npm"}
	wanted := []string{"github-actions /"}
	if err := filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "bin" || entry.Name() == ".git" || strings.HasSuffix(path, "test/cluster/kubernetes")) {
			return filepath.SkipDir
		}
		if ecosystem := ecosystems[entry.Name()]; ecosystem != "" {
			wanted = append(wanted, ecosystem+" /"+strings.TrimPrefix(strings.TrimPrefix(filepath.Dir(path), "../.."), "/"))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range wanted {
		if !kept[name] {
			t.Errorf("nobody looks after %s", name)
		}
	}
}
